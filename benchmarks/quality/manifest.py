"""A pod of the trace as its author would write it for the product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.quality.product import kind_of
from benchmarks.quality.trace import TracePod
from extender.allocation import DEFAULT_PREFIX

_MILLI_PER_PERCENT = 10


def manifest_of(pod: TracePod, name: str, products: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the pod's manifest; ``gpu-compute`` is in per cent of a device, the sum over the pod's devices.

    ``products`` says by what names models are asked for, where the benchmark's own do not do.
    """
    asks = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    if pod.cards:
        percent = pod.gpu_milli // _MILLI_PER_PERCENT
        asks |= {f"{DEFAULT_PREFIX}gpu": str(pod.cards), f"{DEFAULT_PREFIX}gpu-compute": str(percent)}
    wanted = ",".join(products[model] if products else kind_of(model).product for model in pod.models)
    container = {"name": "main", "image": "tangram.test/pause:1", "resources": {"requests": asks, "limits": asks}}
    return {
        "metadata": {"name": name, "annotations": {f"{DEFAULT_PREFIX}gpu-product": wanted} if wanted else {}},
        "spec": {"containers": [container]},
    }

"""The named workloads of ``workload``: each stands for rows of other annotations, which an author's own rows override.

Keys are written without the prefix. A row narrows only where the work would not run, or not sensibly, on other devices;
the rest are preferences, so that a preset never makes a pod wait for a device that it could do without.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKLOADS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        # Mixed precision (AMP) is the common way to train and needs tensor cores.
        "training": {"gpu-features": "tensor-fp16", "gpu-policy": "binpack", "gpu-prefer": "hopper=3,ampere=2"},
        # Small batches leave a large device idle; a neighbour's load is what a client feels.
        "inference": {"gpu-policy": "latency", "gpu-prefer": "l4=3,t4=2"},
        # A notebook idles, then bursts: away from others rather than on the strongest device.
        "interactive": {"gpu-policy": "spread", "gpu-prefer": "t4=3,l4=2"},
        "batch": {"gpu-policy": "binpack"},
        # RAPIDS (Spark's GPU plug-in too) runs on Volta and younger.
        "analytics": {"gpu-architecture": ">=volta", "gpu-policy": "binpack"},
        # Cards with ray-tracing units; data-centre compute cards have none.
        "rendering": {"gpu-policy": "binpack", "gpu-prefer": "l40s=3,l4=2,t4=1"},
        # Full-rate double precision is in the large cards of these generations only.
        "hpc": {"gpu-policy": "binpack", "gpu-prefer": "hopper=3,v100*=2,p100*=1"},
        # Short and many: old cards are good enough, and cheap.
        "ci": {"gpu-policy": "binpack", "gpu-prefer": "kepler=3,pascal=2,t4=1"},
    }
)

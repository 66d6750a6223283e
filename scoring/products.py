"""What is known of one GPU product, and what follows from its figures: features and relative cost.

The rows are in ``product_table``; they are hints. What NVML reports of a real device always wins (see ``catalog``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scoring.architecture import Architecture

FEATURES = frozenset({"tensor-fp16", "int8", "bf16", "fp8", "fp4", "nvdec", "nvenc", "nvjpg", "mig", "nvlink"})
"""Every capability that a pod can ask for."""

MEDIA_FEATURES = frozenset({"nvdec", "nvenc", "nvjpg"})

_T4_TFLOPS, _T4_MIB, _T4_GB_S = 65.0, 15360, 320.0
_MIG_SUFFIX = re.compile(r"-mig-[0-9].*$", re.IGNORECASE)
_SHARED_SUFFIX = re.compile(r"-shared$", re.IGNORECASE)
_BRAND = re.compile(r"^(?:(?:nvidia|tesla)-)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Product:
    """One product.

    ``name``          canonical: NVML's name without ``NVIDIA`` and ``Tesla``, blanks as ``-``
    ``nvml_names``    names that drivers gave it, the present one first
    ``aliases``       other names that mean this product and no other
    ``nominal_mib``   MiB that NVML reports in total, 0 where it reports none
    ``sms``           streaming multiprocessors, 0 where unknown
    ``fp32_tflops``, ``fp16_tflops``  dense peaks; the second on tensor cores where there are some
    ``bandwidth_gb_s``  of device memory
    ``cost``          relative, T4 = 1.0: see ``relative_cost``
    ``mig_profiles``  (profile, most instances of it), the smallest one first
    ``source``        where the figures come from
    """

    name: str
    nvml_names: tuple[str, ...]
    aliases: tuple[str, ...]
    architecture: Architecture
    compute_capability: tuple[int, int]
    nominal_mib: int
    sms: int
    features: frozenset[str]
    fp32_tflops: float
    fp16_tflops: float
    bandwidth_gb_s: float
    cost: float
    mig_profiles: tuple[tuple[str, int], ...]
    source: str


def capability_features(capability: tuple[int, int]) -> frozenset[str]:
    """Return the arithmetic that *every* product of a compute capability has; media, MIG, NVLink depend on the product.

    ``tensor-fp16`` is left out for 7.5, whose smaller products (TU116, TU117: GTX 16, T1000) have no tensor cores.
    ``int8`` is a hardware path no slower than FP16: dp4a on 6.1, tensor cores on 7.2 and from 7.5 on. It is left out
    for 10.3 (B300, GB300), where INT8 runs at a small fraction of B200's rate.
    Source: CUDA C++ programming guide, arithmetic throughput; TensorRT support matrix.
    """
    features = {
        "tensor-fp16": capability >= (7, 0) and capability != (7, 5),
        "int8": capability in {(6, 1), (7, 2)} or (capability >= (7, 5) and capability != (10, 3)),
        "bf16": capability >= (8, 0),
        "fp8": capability >= (8, 9),
        "fp4": capability >= (10, 0),
    }
    return frozenset(feature for feature, present in features.items() if present)


def relative_cost(tflops: float, mib: int, bandwidth_gb_s: float) -> float:
    """Return what a device is worth against a T4, to two digits: how much is given away when a small pod takes it.

    The geometric mean of three ratios to a T4 (peak FP16, or FP32 where that is higher; memory; memory bandwidth), so
    that no single figure decides. It orders products as public cloud prices do and is flatter than they are. All
    figures must be above 0.
    """
    ratios = (tflops / _T4_TFLOPS) * (mib / _T4_MIB) * (bandwidth_gb_s / _T4_GB_S)
    return float(round(ratios ** (1 / 3), 2))


def label_form(text: str) -> str:
    """Return a product's name as node labels spell it: other characters dropped, blanks as ``-``, brand kept.

    ``-SHARED`` and ``-MIG-<profile>``, which GPU feature discovery appends, and NVML's `` MIG <profile>`` are dropped.
    """
    kept = re.sub(r"[^A-Za-z0-9._*?\s-]", "", text)
    label = re.sub(r"[\s_-]+", "-", kept).strip("-")
    return _SHARED_SUFFIX.sub("", _MIG_SUFFIX.sub("", label))


def canonical_form(text: str) -> str:
    """Return the canonical spelling of a product's name: its label form without the brand."""
    label = label_form(text)
    return _BRAND.sub("", label) or label


def name_key(text: str) -> str:
    """Return what two spellings of one product's name have in common."""
    return canonical_form(text).lower()

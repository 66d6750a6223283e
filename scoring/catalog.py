"""Which GPU a device is: names as drivers, labels and authors spell them, and the kind that conditions are matched on.

The table of products fills in what NVML does not say (features, relative cost); where both speak, NVML wins. A device
that the table does not know is served all the same: it gets what every product of its compute capability can do, and a
neutral cost.
"""

from __future__ import annotations

import difflib
import fnmatch
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from scoring.architecture import Architecture
from scoring.mig_profile import MigProfile, parse_mig_profile
from scoring.product_table import PRODUCTS, TRACE_MODELS
from scoring.products import (
    FEATURES,
    MEDIA_FEATURES,
    Product,
    canonical_form,
    capability_features,
    label_form,
    name_key,
)

__all__ = [
    "FEATURES",
    "PRODUCTS",
    "TRACE_MODELS",
    "WHOLE_SM_MILLI",
    "Architecture",
    "DeviceKind",
    "MigProfile",
    "Product",
    "device_kind",
    "find_product",
    "is_glob",
    "is_product",
    "nearest_products",
    "parse_mig_profile",
    "parse_version",
    "product_pattern",
    "wildcard",
]

WHOLE_SM_MILLI = 1000
"""Streaming multiprocessors of a whole device, in thousandths of it."""

_KINDS_REMEMBERED = 1024
_NAME_LIMIT = 128
_VERSION_PARTS = 4


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """What all devices of one kind have in common; a fleet has few kinds, so everything static is decided once a kind.

    ``product``             canonical name, also of a product that the table does not know
    ``nvml_name``           as the driver reports it
    ``compute_capability``  (0, 0) where unknown
    ``total_mib``           MiB that NVML reports in total, of the instance for MIG; 0 where it reports none
    ``driver``, ``cuda``    version of the driver, newest CUDA version that it supports; empty where unknown
    ``mig_profile``         of a MIG instance, None for a whole device
    ``cost``                relative, T4 = 1.0; an instance costs its share of the device
    ``sm_milli``            streaming multiprocessors in thousandths of the physical device
    """

    product: str
    nvml_name: str
    architecture: Architecture
    compute_capability: tuple[int, int]
    total_mib: int
    driver: tuple[int, ...] = ()
    cuda: tuple[int, ...] = ()
    features: frozenset[str] = frozenset()
    mig_profile: str | None = None
    cost: float = 1.0
    sm_milli: int = WHOLE_SM_MILLI


def device_kind(
    nvml_name: str,
    *,
    architecture: int = 0,
    compute_capability: tuple[int, int] = (0, 0),
    total_mib: int = 0,
    driver: tuple[int, ...] | str = (),
    cuda: tuple[int, ...] | str = (),
    mig_profile: str | None = None,
    sm_milli: int = WHOLE_SM_MILLI,
) -> DeviceKind:
    """Return the kind of a device from what NVML reports of it; never raises, whatever the name and the numbers are.

    ``architecture`` is NVML's number, 0 where absent. A compute capability that NVML does not report is taken from the
    table; a memory size never is: memory that NVML does not see cannot be booked.
    """
    versions = tuple(parse_version(value) if isinstance(value, str) else tuple(value) for value in (driver, cuda))
    return _kind(
        nvml_name[:_NAME_LIMIT], architecture, compute_capability, max(total_mib, 0), versions, mig_profile, sm_milli
    )


@lru_cache(maxsize=_KINDS_REMEMBERED)
def _kind(
    nvml_name: str,
    number: int,
    capability: tuple[int, int],
    total_mib: int,
    versions: tuple[tuple[int, ...], ...],
    mig_profile: str | None,
    sm_milli: int,
) -> DeviceKind:
    product = find_product(nvml_name)
    if capability <= (0, 0) and product is not None:
        capability = product.compute_capability
    if product is None or product.compute_capability != capability:
        product = wildcard(nvml_name, capability)
    profile = parse_mig_profile(mig_profile) if mig_profile else None
    driver, cuda = versions
    return DeviceKind(
        product=product.name,
        nvml_name=nvml_name,
        architecture=Architecture.from_nvml(number, capability),
        compute_capability=capability,
        total_mib=total_mib,
        driver=driver,
        cuda=cuda,
        features=product.features if not mig_profile else _instance_features(product, profile),
        mig_profile=profile.name if profile else mig_profile or None,
        cost=product.cost if not mig_profile else _instance_cost(product, total_mib, sm_milli),
        sm_milli=sm_milli,
    )


def _instance_features(product: Product, profile: MigProfile | None) -> frozenset[str]:
    """Return what an instance keeps of its device's features.

    NVLink is off under MIG. On A100 and A30 the smallest profile has no media engine, and only the whole device and
    ``+me`` have the JPEG engine; from Hopper on every instance has a share, but for profiles that say ``-me``.
    Source: NVIDIA MIG user guide, supported profiles.
    """
    features = (product.features - {"nvlink"}) | {"mig"}
    if profile is None or "me" in profile.without:
        return features - MEDIA_FEATURES
    if product.architecture > Architecture.AMPERE or "me" in profile.attributes or not product.mig_profiles:
        return features
    smallest, whole = product.mig_profiles[0][0], product.mig_profiles[-1][0]
    if profile.name == whole:
        return features
    return features - (MEDIA_FEATURES if profile.name == smallest else {"nvjpg"})


def _instance_cost(product: Product, total_mib: int, sm_milli: int) -> float:
    """Return the cost of a MIG instance: the device's, times the mean of its shares in SMs and memory."""
    shares = [sm_milli / WHOLE_SM_MILLI]
    if product.nominal_mib:
        shares.append(total_mib / product.nominal_mib)
    share = min(sum(shares) / len(shares), 1.0)
    return float(round(product.cost * max(share, 0.0), 3))


def wildcard(name: str, capability: tuple[int, int]) -> Product:
    """Return what can be said of a product that only its compute capability tells: neutral cost, no media engines.

    The neutral cost is the median of the known products of that capability, of all known products where there are none.
    """
    kin = [row.cost for row in PRODUCTS if row.compute_capability == capability] or [row.cost for row in PRODUCTS]
    return Product(
        name=canonical_form(name) or "unknown",
        nvml_names=(name,),
        aliases=(),
        architecture=Architecture.from_compute_capability(capability),
        compute_capability=capability,
        nominal_mib=0,
        sms=0,
        features=capability_features(capability),
        fp32_tflops=0.0,
        fp16_tflops=0.0,
        bandwidth_gb_s=0.0,
        cost=float(round(median(kin), 2)),
        mig_profiles=(),
        source="wildcard by compute capability",
    )


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a dotted version up to the first part that is none, at most four; never raises."""
    numbers: list[int] = []
    for part in text.strip().split(".")[:_VERSION_PARTS]:
        if not (part.isascii() and part.isdigit() and len(part) <= 9):
            break
        numbers.append(int(part))
    return tuple(numbers)


def find_product(text: str) -> Product | None:
    """Return the product of that name in any spelling: NVML's, a node label's, the canonical one, an alias.

    The whole name is compared, never a part: ``H20`` is not ``H200``, and ``A100`` alone names no product.
    """
    return _BY_KEY.get(name_key(text))


def nearest_products(text: str, limit: int = 5) -> tuple[str, ...]:
    """Return canonical names that come closest to a text, best first: the family that it names, else similar names."""
    key = name_key(text)
    family = [product.name for product in PRODUCTS if key and name_key(product.name).startswith(f"{key}-")]
    alike = difflib.get_close_matches(key, list(_BY_KEY), n=3 * limit, cutoff=0.5)
    names = dict.fromkeys(family or [_BY_KEY[found].name for found in alike])
    return tuple(names)[:limit]


def is_glob(pattern: str) -> bool:
    """Return whether a product's name is a pattern with ``*`` or ``?``."""
    return "*" in pattern or "?" in pattern


def product_pattern(text: str) -> str:
    """Return the normal form of a name or glob; all spellings of one known product have the same one."""
    if is_glob(text):
        return label_form(text).lower()
    product = find_product(text)
    return name_key(product.name if product else text)


def is_product(pattern: str, kind: DeviceKind) -> bool:
    """Return whether a pattern (see ``product_pattern``) names the product of a device, by its whole name."""
    names = _names(kind.product, kind.nvml_name)
    if is_glob(pattern):
        return any(fnmatch.fnmatchcase(name, pattern) for name in names)
    return pattern in names


@lru_cache(maxsize=_KINDS_REMEMBERED)
def _names(product: str, nvml_name: str) -> tuple[str, ...]:
    """Return every whole name of a device's product, in lower case, with and without the brand."""
    known = find_product(product)
    others = (*known.nvml_names, *known.aliases) if known else ()
    spelled = [label_form(name).lower() for name in (product, nvml_name, *others)]
    branded = [name if name.startswith(("nvidia-", "tesla-")) else f"nvidia-{name}" for name in spelled]
    return tuple(dict.fromkeys([*(name_key(name) for name in spelled), *spelled, *branded]))


_BY_KEY = {
    name_key(name): product for product in PRODUCTS for name in (product.name, *product.nvml_names, *product.aliases)
}

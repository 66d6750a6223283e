"""The GPUs that a simulated node can have: what NVML would say of each, as data.

Names, totals, SM counts, compute capabilities and power limits are node-side.md 2.2, MIG sizes and placements 2.3.
Reserved memory was seen on H100 (479), L40S (609) and H200 (614), node-side.md 1.5, and on T4 (450, case L2); the
other values of that column are nominal, in the 300 to 1,000 MiB that drivers since R510 keep. K80's last driver does
not tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class MigShape:
    """A MIG profile of one product: its size, and where it may start, in memory slices."""

    memory_mib: int
    sm_count: int
    starts: tuple[int, ...]
    slices: int


@dataclass(frozen=True, slots=True)
class Product:
    """One product: identity as NVML spells it, sizes, and the driver that its nodes run."""

    name: str
    architecture: int
    compute_capability: tuple[int, int]
    total_mib: int
    reserved_mib: int
    sm_count: int
    power_limit_watts: float
    driver: str = "580.95.05"
    cuda: str = "13.0"
    linked: bool = False
    mig: dict[str, MigShape] = field(default_factory=dict)


def _seven_slices(
    names: tuple[str, str, str, str, str, str], mib: tuple[int, int, int, int], sm: tuple[int, int, int, int, int]
) -> dict[str, MigShape]:
    """Lay out a part of eight memory slices: 1g, 1g of double memory, 2g, 3g, 4g, 7g (node-side.md 2.3)."""
    one, double, two, three, four, seven = names
    one_mib, two_mib, three_mib, seven_mib = mib
    return {
        one: MigShape(one_mib, sm[0], (0, 1, 2, 3, 4, 5, 6), 1),
        double: MigShape(two_mib, sm[0], (0, 2, 4, 6), 2),
        two: MigShape(two_mib, sm[1], (0, 2, 4), 2),
        three: MigShape(three_mib, sm[2], (0, 4), 4),
        four: MigShape(three_mib, sm[3], (0,), 4),
        seven: MigShape(seven_mib, sm[4], (0,), 8),
    }


_A100_40 = _seven_slices(
    ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"), (4864, 9856, 19968, 40192), (14, 28, 42, 56, 98)
)
_A100_80 = _seven_slices(
    ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    (9728, 19968, 40192, 80896),
    (14, 28, 42, 56, 98),
)
_H100_80 = _seven_slices(
    ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    (9984, 20096, 40448, 81079),
    (16, 32, 60, 64, 132),
)
_H200 = _seven_slices(
    ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    (16384, 33280, 71424, 143157),
    (16, 32, 60, 64, 132),
)

PRODUCTS: dict[str, Product] = {
    "K80": Product("Tesla K80", 2, (3, 7), 11441, 0, 13, 150.0, driver="470.256.02", cuda="11.4"),
    "P100": Product("Tesla P100-PCIE-16GB", 4, (6, 0), 16280, 320, 56, 250.0),
    "V100": Product("Tesla V100-SXM2-32GB", 5, (7, 0), 32768, 340, 80, 300.0, linked=True),
    "V100-16GB": Product("Tesla V100-PCIE-16GB", 5, (7, 0), 16160, 340, 80, 250.0),
    "T4": Product("Tesla T4", 6, (7, 5), 15360, 450, 40, 70.0),
    "A100": Product("NVIDIA A100-SXM4-80GB", 7, (8, 0), 81920, 560, 108, 400.0, linked=True, mig=_A100_80),
    "A100-40GB": Product("NVIDIA A100-SXM4-40GB", 7, (8, 0), 40960, 510, 108, 400.0, linked=True, mig=_A100_40),
    "A10": Product("NVIDIA A10", 7, (8, 6), 23028, 450, 72, 150.0),
    "L4": Product("NVIDIA L4", 8, (8, 9), 23034, 480, 58, 72.0),
    "L40S": Product("NVIDIA L40S", 8, (8, 9), 46068, 609, 142, 350.0),
    "H100": Product("NVIDIA H100 80GB HBM3", 9, (9, 0), 81559, 479, 132, 700.0, linked=True, mig=_H100_80),
    "H200": Product("NVIDIA H200", 9, (9, 0), 143771, 614, 132, 700.0, linked=True, mig=_H200),
    "B200": Product("NVIDIA B200", 10, (10, 0), 183359, 720, 148, 1000.0, linked=True),
}


@lru_cache(maxsize=1024)
def find_product(text: str) -> Product | None:
    """Return the product for a short name (``H100``) or for the name that NVML gives, without regard to case."""
    wanted = text.strip().casefold()
    for short, product in PRODUCTS.items():
        if wanted in {short.casefold(), product.name.casefold()}:
            return product
    return None

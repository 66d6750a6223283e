"""Descriptions made by rule: a node of one product, a mixed node, and a fleet of every generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from node_agent.simulated_description import Description, DeviceRow, Load, Sine, check

FLEET_KINDS: tuple[tuple[str, str, int, tuple[str, ...] | None], ...] = (
    ("k80", "K80", 8, None),
    ("p100", "P100", 4, None),
    ("v100", "V100", 8, None),
    ("t4", "T4", 4, None),
    ("a100", "A100", 8, None),
    ("a100-mig", "A100", 2, ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")),
    ("l4", "L4", 4, None),
    ("l40s", "L40S", 8, None),
    ("h100", "H100", 8, None),
    ("h200", "H200", 8, None),
    ("b200", "B200", 8, None),
)
"""Name of the kind, product, devices a node, and MIG instances on each device where the kind is split."""

MIXED_PRODUCTS = ("V100", "T4", "L4", "A100-40GB")


def node_description(
    node: str,
    product: str,
    count: int = 8,
    *,
    mig: Sequence[str] | None = None,
    utilisation: float | Load | None = None,
) -> Description:
    """Describe a node of equal devices; raise DescriptionError for an unknown product or instances that do not fit."""
    row = DeviceRow(product=product, count=count, mig=None if mig is None else tuple(mig), utilisation=utilisation)
    return check(Description(node=node, devices=(row,)))


def mixed_node(node: str, products: Sequence[str] = MIXED_PRODUCTS) -> Description:
    """Describe a node whose devices are all different."""
    return check(Description(node=node, devices=tuple(DeviceRow(product=product) for product in products)))


def mixed_fleet(node_count: int, *, prefix: str = "gpu", swing: float = 0.0) -> Iterator[Description]:
    """Describe ``node_count`` nodes, the kinds in turn and one mixed node a round; names end in kind and number.

    ``swing`` (0..1) lets loads move around ``swing / 2`` over two to six minutes, each node in its own phase; 0 leaves
    the load to the pods.
    """
    for number in range(node_count):
        kind = number % (len(FLEET_KINDS) + 1)
        if kind == len(FLEET_KINDS):
            yield mixed_node(f"{prefix}-mixed-{number}")
            continue
        name, product, count, mig = FLEET_KINDS[kind]
        load = None if mig is not None or not swing else _swing(number, swing)
        yield node_description(f"{prefix}-{name}-{number}", product, count, mig=mig, utilisation=load)


def _swing(number: int, swing: float) -> Load:
    half = min(1.0, swing) / 2
    return Load(sine=Sine(mean=half, amplitude=half, period_s=120.0 + 30.0 * (number % 9), phase_s=17.0 * number))

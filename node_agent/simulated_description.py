"""The file that describes a simulated node: its schema, reading it, and saying what is wrong with it.

YAML or JSON, one mapping a node (or a list of them)::

    node: gpu-1
    devices:
      - {product: H100, count: 4, utilisation: 0.3}
      - product: A100
        mig: [1g.10gb, 1g.10gb, 3g.40gb]
        utilisation: {sine: {mean: 0.5, amplitude: 0.3, period_s: 120}}
        foreign: [{memory_mib: 4096, from_s: 30, until_s: 90}]
    faults: [{kind: xid, device: 0, xid: 79, at_s: 60, until_s: 120}]
    plugin: [{resource: nvidia.com/gpu, devices: [3], used: 1}]

Devices are numbered over the whole node in the order written. Times are seconds since the simulation began.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from node_agent.report import Mode
from node_agent.simulated_products import PRODUCTS, Product, find_product

MAX_DEVICES = 64
"""More than any machine holds; the limit keeps a slip of the pen from filling memory."""

Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Mib = Annotated[int, msgspec.Meta(ge=0, le=16_777_216)]


class DescriptionError(ValueError):
    """The description cannot be used; the message names the field, what was found and what is valid."""


class Sine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load that swings around its mean; the result is cut to 0..1."""

    mean: Ratio
    amplitude: Ratio
    period_s: Annotated[float, msgspec.Meta(gt=0)]
    phase_s: float = 0.0


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Utilisation over time: ``sine``, or ``steps`` as pairs of (from second, value) in order of time."""

    sine: Sine | None = None
    steps: tuple[tuple[Seconds, Ratio], ...] = ()


class Foreign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process of nobody's pod that holds memory from one second (inclusive) until another (exclusive)."""

    memory_mib: Mib
    from_s: Seconds = 0.0
    until_s: Seconds = math.inf


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``count`` equal devices; ``mig`` lists the instances' profiles on each, an empty list means MIG without any."""

    product: str
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_DEVICES)] = 1
    utilisation: Ratio | Load | None = None
    foreign: tuple[Foreign, ...] = ()
    mig: tuple[str, ...] | None = None
    mode: Mode = Mode.TIME_SLICING


class FaultKind(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """What all faults have: when they begin, and when they are over."""

    at_s: Seconds = 0.0
    until_s: Seconds = math.inf


class XidFault(FaultKind, tag="xid", frozen=True, kw_only=True):
    """The driver announces an XID once, at ``at_s``; at ``until_s`` the device is reset."""

    device: int
    xid: Annotated[int, msgspec.Meta(ge=1)]


class LostFault(FaultKind, tag="lost", frozen=True, kw_only=True):
    """The device is off the bus for the time of the fault."""

    device: int


class HangFault(FaultKind, tag="hang", frozen=True, kw_only=True):
    """NVML does not answer for the time of the fault: the last sweep stands and ages."""


Fault = XidFault | LostFault | HangFault


class Pods(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of what is booked the pods really use; above 1 they use more than they booked."""

    memory_ratio: Annotated[float, msgspec.Meta(ge=0, le=4)] = 0.9
    compute_ratio: Annotated[float, msgspec.Meta(ge=0, le=4)] = 0.7


class PluginRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Devices that NVIDIA's device plugin hands out, ``replicas`` in all (default: one a device), ``used`` taken."""

    resource: str
    devices: tuple[int, ...]
    replicas: Annotated[int, msgspec.Meta(ge=0)] | None = None
    used: Annotated[int, msgspec.Meta(ge=0)] = 0


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One simulated node. ``driver`` and ``cuda`` default to what the first product's nodes run."""

    node: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    devices: tuple[DeviceRow, ...] = ()
    driver: str = ""
    cuda: str = ""
    faults: tuple[Fault, ...] = ()
    pods: Pods = Pods()
    plugin: tuple[PluginRow, ...] = ()

    def rows(self) -> Iterator[tuple[int, DeviceRow, Product]]:
        """Yield one entry per device, in order of index."""
        index = 0
        for row in self.devices:
            product = find_product(row.product)
            assert product is not None, "checked when the description was read"
            for _ in range(row.count):
                yield index, row, product
                index += 1


def load_descriptions(path: Path) -> list[Description]:
    """Read the nodes of a file; raise DescriptionError with file, field, value and what is valid."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise DescriptionError(f"{path}: not readable as YAML or JSON: {problem}") from problem
    try:
        return [parse_description(each) for each in (raw if isinstance(raw, list) else [raw])]
    except DescriptionError as problem:
        raise DescriptionError(f"{path}: {problem}") from problem


def parse_description(raw: object) -> Description:
    """Turn plain data into a checked description; raise DescriptionError where it is not one."""
    try:
        description = msgspec.convert(raw, Description)
    except msgspec.ValidationError as problem:
        raise DescriptionError(str(problem)) from problem
    return check(description)


def check(description: Description) -> Description:
    """Return the description if its parts agree with each other; raise DescriptionError where not."""
    count = sum(row.count for row in description.devices)
    if count > MAX_DEVICES:
        raise DescriptionError(f"devices: {count} in all, at most {MAX_DEVICES} on a node")
    for number, row in enumerate(description.devices):
        _check_row(f"devices[{number}]", row)
    for number, fault in enumerate(description.faults):
        if not isinstance(fault, HangFault):
            _check_index(f"faults[{number}].device", fault.device, count)
        if fault.until_s <= fault.at_s:
            raise DescriptionError(
                f"faults[{number}].until_s: {fault.until_s:g}, must be later than at_s {fault.at_s:g}"
            )
    for number, claim in enumerate(description.plugin):
        for index in claim.devices:
            _check_index(f"plugin[{number}].devices", index, count)
    return description


def _check_row(where: str, row: DeviceRow) -> None:
    product = find_product(row.product)
    if product is None:
        raise DescriptionError(f"{where}.product: {row.product!r} is not known, valid: {', '.join(PRODUCTS)}")
    if row.mode is Mode.MIG:
        raise DescriptionError(f"{where}.mode: 'mig' is not set here, list the instances under mig")
    if isinstance(row.utilisation, Load) and (row.utilisation.sine is None) == (not row.utilisation.steps):
        raise DescriptionError(f"{where}.utilisation: exactly one of sine and steps is wanted")
    if row.mig is not None:
        place_instances(where, product, row.mig)


def _check_index(where: str, index: int, count: int) -> None:
    if not 0 <= index < count:
        raise DescriptionError(f"{where}: {index}, valid: 0 to {count - 1} (the node has {count} devices)")


def place_instances(where: str, product: Product, profiles: tuple[str, ...]) -> tuple[int, ...]:
    """Return the first memory slice of each instance, largest first; raise where they do not all fit."""
    if not product.mig:
        raise DescriptionError(f"{where}.mig: {product.name} has no MIG")
    for profile in profiles:
        if profile not in product.mig:
            raise DescriptionError(
                f"{where}.mig: {profile!r} is not a profile of {product.name}, valid: {', '.join(product.mig)}"
            )
    taken = 0
    starts = [0] * len(profiles)
    for number in sorted(range(len(profiles)), key=lambda each: -product.mig[profiles[each]].slices):
        shape = product.mig[profiles[number]]
        mask = (1 << shape.slices) - 1
        start = next((start for start in reversed(shape.starts) if not taken & (mask << start)), None)
        if start is None:
            raise DescriptionError(f"{where}.mig: {', '.join(profiles)} do not fit on one {product.name} together")
        taken |= mask << start
        starts[number] = start
    return tuple(starts)

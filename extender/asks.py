"""One container's rows (``gpu``, ``gpu-memory``, ``gpu-compute``) as what it asks of each of its devices.

Rows are totals over the container's devices and are split evenly (design section 2); a total that does not divide is
refused with the nearest that does, never rounded. Kubernetes reads 0 as "nothing asked", and so do we where every row
is 0; beside other rows a 0 contradicts them.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from extender.problems import attempt
from extender.quantity import MAX_MEMORY_MIB, memory_amount, parse_quantity, whole_number
from scoring.errors import InvalidRequest
from scoring.request import WHOLE_MILLI, ContainerAsk, ContainerKind

if TYPE_CHECKING:
    from collections.abc import Mapping

GPU = "gpu"
GPU_MEMORY = "gpu-memory"
GPU_COMPUTE = "gpu-compute"
GPU_FRACTION = "gpu-fraction"
ROWS = (GPU, GPU_MEMORY, GPU_COMPUTE)

MAX_DEVICES = 1024
"""Bound on the devices of one container: far above any node, and small enough to count with."""

_PERCENT = 100
_MOST_COMPARED = 128
_MILLI_PER_PERCENT = WHOLE_MILLI // _PERCENT


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one container as found: name, kind, resource name -> quantity, and the prefix of our resources."""

    container: str
    kind: ContainerKind
    amounts: Mapping[str, str]
    prefix: str

    def field(self, row: str) -> str:
        """Return how a row is named in an error."""
        return f"{self.prefix}{row} of container {self.container}"

    def text(self, row: str) -> str | None:
        """Return a row's quantity as found, None where the container does not have it."""
        return self.amounts.get(self.prefix + row)


def fraction_percent(text: str, field: str) -> int:
    """Return a fraction of a device as per cent, 1 to 100; raise InvalidRequest for anything but whole hundredths."""
    valid = "0.01 to 1 in steps of 0.01"
    stripped = text.strip()
    if not stripped.replace(".", "", 1).isdecimal() or not stripped.isascii():
        raise InvalidRequest(field, text[:_PERCENT], valid)
    try:
        percent = parse_quantity(stripped, field) * _PERCENT
    except InvalidRequest as problem:
        raise InvalidRequest(field, problem.found, valid) from problem
    if percent.denominator != 1 or not 1 <= percent <= _PERCENT:
        raise InvalidRequest(field, text, valid)
    return percent.numerator


def container_ask(rows: Rows, percent: int | None, problems: list[InvalidRequest]) -> ContainerAsk | None:
    """Return what a container asks, None if it asks for nothing of ours or cannot be understood.

    ``percent`` is the share of each device that ``gpu-fraction`` gives this container. Every problem is appended: those
    of single rows first; where there are none, those of the rows together.
    """
    before = len(problems)
    attempt(problems, None, partial(_refuse_unknown, rows))
    count = attempt(problems, None, partial(_amount, rows, GPU))
    memory = attempt(problems, None, partial(_memory, rows))
    compute = attempt(problems, None, partial(_amount, rows, GPU_COMPUTE))
    asks_nothing = percent is None and not (count or memory or compute)
    if asks_nothing or len(problems) > before:
        return None
    devices = attempt(problems, None, partial(_devices, rows, count))
    if devices is None:
        return None
    if percent is not None:
        return attempt(problems, None, partial(_fraction_ask, rows, devices, percent, memory, compute))
    if memory is None and compute is None:
        return ContainerAsk(rows.container, devices, None, WHOLE_MILLI, rows.kind)
    memory_each = attempt(problems, None, partial(_memory_each, rows, memory, devices))
    compute_each = attempt(problems, None, partial(_compute_each, rows, compute, devices))
    if len(problems) > before:
        return None
    return ContainerAsk(rows.container, devices, memory_each, compute_each, rows.kind)


def _refuse_unknown(rows: Rows) -> None:
    known = [rows.prefix + row for row in ROWS]
    for resource in rows.amounts:
        if resource.startswith(rows.prefix) and resource not in known:
            nearest = difflib.get_close_matches(resource[:_MOST_COMPARED], known, n=1, cutoff=0.0)[0]
            field = f"resource of container {rows.container}"
            raise InvalidRequest(field, resource, f"{', '.join(known)}; the nearest is {nearest}")


def _amount(rows: Rows, row: str) -> int | None:
    text = rows.text(row)
    return None if text is None else whole_number(text, rows.field(row))


def _memory(rows: Rows) -> int | None:
    text = rows.text(GPU_MEMORY)
    return None if text is None else memory_amount(text, rows.field(GPU_MEMORY)).mib


def _devices(rows: Rows, count: int | None) -> int:
    if count is None:
        return 1
    if not 1 <= count <= MAX_DEVICES:
        raise InvalidRequest(rows.field(GPU), str(count), f"1 to {MAX_DEVICES} devices")
    return count


def _fraction_ask(rows: Rows, devices: int, percent: int, memory: int | None, compute: int | None) -> ContainerAsk:
    """Return the ask of a fraction of each device; the compute row that the webhook derives from it may be there."""
    if memory is not None:
        valid = f"no {GPU_MEMORY} beside {GPU_FRACTION}, which takes that fraction of the memory too"
        raise InvalidRequest(rows.field(GPU_MEMORY), str(memory), valid)
    if compute is not None and compute != percent * devices:
        valid = f"{percent * devices}, which is what {GPU_FRACTION} asks, or no {GPU_FRACTION}"
        raise InvalidRequest(rows.field(GPU_COMPUTE), str(compute), valid)
    return ContainerAsk(rows.container, devices, None, percent * _MILLI_PER_PERCENT, rows.kind)


def _memory_each(rows: Rows, total: int | None, devices: int) -> int | None:
    if total is None:
        return None
    _check_total(rows.field(GPU_MEMORY), total, "MiB", devices, devices, MAX_MEMORY_MIB)
    return total // devices


def _compute_each(rows: Rows, total: int | None, devices: int) -> int | None:
    if total is None:
        return None
    step = devices // math.gcd(devices, _MILLI_PER_PERCENT)
    _check_total(rows.field(GPU_COMPUTE), total, "per cent", devices, step, _PERCENT * devices)
    return total * _MILLI_PER_PERCENT // devices


def _check_total(field: str, total: int, unit: str, devices: int, step: int, limit: int) -> None:
    """Raise InvalidRequest unless the total is a multiple of ``step`` from ``step`` to ``limit``."""
    on = "1 device" if devices == 1 else f"{devices} devices"
    if not 1 <= total <= limit:
        raise InvalidRequest(field, str(total), f"{step} to {limit} {unit} on {on}")
    if total % step:
        below = total - total % step
        nearest = [str(near) for near in (below, below + step) if step <= near <= limit]
        raise InvalidRequest(field, str(total), f"a total that divides evenly over {on}: {' or '.join(nearest)} {unit}")

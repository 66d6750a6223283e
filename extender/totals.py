"""What a node advertises of ours (design section 2): totals that kubelet and in-tree filters count.

Totals are of devices present, never below what is booked, and do not shrink because health falters or reports stop:
kubelet would refuse running pods after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from extender.hardware import DeviceFacts
from extender.ledger import DeviceSum
from scoring.fleet import ModeCode

DEVICES = "gpu"
MEMORY = "gpu-memory"
COMPUTE = "gpu-compute"

PER_DEVICE = 100
"""Of ``gpu`` a ceiling that never binds, of ``gpu-compute`` per cent: each device counts 100."""

_MILLI_PER_CENT = 10


def advertised_totals(devices: Iterable[DeviceFacts], books: Mapping[str, DeviceSum]) -> dict[str, int]:
    """Return the totals of a node, by resource without prefix.

    ``books`` is what each device has given away, devices included that no agent reports any more. Devices of NVIDIA's
    plugin are that plugin's to advertise.
    """
    ours = [facts for facts in devices if facts.mode is not ModeCode.PLUGIN or facts.uuid in books]
    unknown = [given for uuid, given in books.items() if uuid not in {facts.uuid for facts in ours}]
    memory_mib = sum(max(facts.capacity_mib, _given_mib(books, facts.uuid)) for facts in ours)
    memory_mib += sum(given.memory_mib for given in unknown)
    compute = sum(max(PER_DEVICE, _given_per_cent(books.get(facts.uuid))) for facts in ours)
    compute += sum(_given_per_cent(given) for given in unknown)
    return {DEVICES: PER_DEVICE * (len(ours) + len(unknown)), MEMORY: memory_mib, COMPUTE: compute}


def _given_mib(books: Mapping[str, DeviceSum], uuid: str) -> int:
    given = books.get(uuid)
    return given.memory_mib if given is not None else 0


def _given_per_cent(given: DeviceSum | None) -> int:
    return -(-given.compute_milli // _MILLI_PER_CENT) if given is not None else 0

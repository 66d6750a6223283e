"""The names of MIG profiles, as drivers, node labels and resources spell them.

Grammar (NVIDIA MIG user guide, device names): ``[Nc.]Ng.Mgb[+attribute[.attribute]...][-attribute...]``. ``Nc`` is
there when a compute instance is smaller than its GPU instance. A Kubernetes resource cannot hold ``+``, so there the
same profile is ``mig-1g.5gb.me``. The gigabytes are rounded and change with firmware; Jetson Thor says zero.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PROFILE = re.compile(
    r"(?:nvidia\.com/)?(?:mig[- ])?(?:(?P<compute>[1-9])c\.)?(?P<slices>[1-9])g\.(?P<gigabytes>[0-9]{1,4})gb"
    r"(?P<with>(?:[+.][a-z]+)*)(?P<without>(?:-[a-z]+)*)"
)


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One MIG profile.

    ``compute_slices``  slices of the compute instance, at most ``gpu_slices``
    ``gpu_slices``      slices of the GPU instance
    ``gigabytes``       memory as the name rounds it, 0 on Jetson
    ``attributes``      what the profile has besides (``me``, ``gfx``, ``me`` and ``all``), in the name's order
    ``without``         what it does without (``me``: no media engines)
    """

    compute_slices: int
    gpu_slices: int
    gigabytes: int
    attributes: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the driver's spelling, such as ``1c.3g.71gb`` or ``1g.24gb+me.all``."""
        compute = "" if self.compute_slices == self.gpu_slices else f"{self.compute_slices}c."
        attributes = "+" + ".".join(self.attributes) if self.attributes else ""
        without = "".join(f"-{attribute}" for attribute in self.without)
        return f"{compute}{self.gpu_slices}g.{self.gigabytes}gb{attributes}{without}"


def parse_mig_profile(text: str) -> MigProfile | None:
    """Return the profile that a text names, in the driver's or in the resource's spelling; None where it names none."""
    found = _PROFILE.fullmatch(text.strip().lower())
    if found is None:
        return None
    slices = int(found["slices"])
    compute = int(found["compute"] or slices)
    if compute > slices:
        return None
    return MigProfile(
        compute_slices=compute,
        gpu_slices=slices,
        gigabytes=int(found["gigabytes"]),
        attributes=tuple(re.findall("[a-z]+", found["with"])),
        without=tuple(re.findall("[a-z]+", found["without"])),
    )

"""What a scorer looks at: one ask, and every device that could take it.

All arrays are in the fleet's shape, ``(width, nodes)``; entries of devices where the ask does not fit hold numbers that
mean nothing and are masked afterwards. A scorer returns values in [0, 1], shape ``(width, nodes)`` or ``(nodes,)``;
higher is better; it must not look at which nodes are in the fleet beside the one it scores, so that one node and five
thousand get the same value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from scoring.fleet import BoolArray, Fleet, IntArray
from scoring.needs import Need
from scoring.outlook import Outlook
from scoring.request import ContainerAsk, PodRequest

Values: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidates:
    """One ask against every device.

    ``need``        what the device would book
    ``fits``        where the ask could be placed now
    ``rest_milli``, ``left_milli``  thousandths of the device that no pod has booked, before and after: the scarcer of
                    its two dimensions. Memory of foreign processes counts as not booked: nobody packs against it.
    ``load_value``  what ``policies.load`` says of every device, where that is known already: it asks nothing of the pod
    """

    request: PodRequest
    ask: ContainerAsk
    fleet: Fleet
    outlook: Outlook
    need: Need
    fits: BoolArray
    rest_milli: IntArray
    left_milli: IntArray
    load_value: Values | None = None


def over_devices(values: Values) -> Values:
    """Return the sum over the first axis, always added up in the same order.

    numpy's own sum of 8 or more floats groups them differently for one node than for many, and so would give one node
    another last digit than the fleet.
    """
    total: Values = values[0].copy()
    for row in values[1:]:
        total += row
    return total

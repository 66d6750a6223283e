"""Devices of a node that belong together: NUMA nodes and NVLink groups, as columns of group numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from scoring.fleet import BoolArray

Groups = npt.NDArray[np.int16]


def each_group(groups: Groups) -> Iterator[BoolArray]:
    """Yield one mask for each group number that occurs, ascending; -1 is no group."""
    for number in np.flatnonzero(np.bincount(groups[groups >= 0])).tolist():
        yield groups == number


def holds_ask(groups: Groups, fits: BoolArray, count: int) -> BoolArray:
    """Return the devices whose group has at least ``count`` devices that fit, shape ``(width, nodes)``."""
    holds = np.zeros(groups.shape, np.bool_)
    for members in each_group(groups):
        enough = (members & fits).sum(axis=0) >= count
        holds |= members & enough
    return holds

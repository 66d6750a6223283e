"""Names that the scheduler sent -> rows of the fleet, and rows -> the JSON from which answers are joined.

The quoted names of a fleet are kept while its nodes stay the same, so that no name is encoded twice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from extender.namewords import UNKNOWN_ROW, Listed, NameWords
from extender.native_names import NameTable
from extender.wire import NodesArgs, quote
from scoring.fleet import Fleet, Row

__all__ = ["UNKNOWN_ROW", "NodeNames", "SentNodes"]

_WORTH_WORDS = 64
"""Names fewer than which are looked up one by one."""


@dataclass(frozen=True, slots=True)
class SentNodes:
    """The nodes of one call, in the order sent: row of each (UNKNOWN_ROW where we know none), and its quoted name.

    ``table`` has the names where the helper knows them all; ``names_json`` need not be looked at then.
    """

    rows: npt.NDArray[np.intp]
    quoted: npt.NDArray[np.object_]
    """Quoted names: one for each node sent, or, with a table, one for each row of the fleet."""
    table: NameTable | None = None

    @property
    def names_json(self) -> npt.NDArray[np.object_]:
        """Return the quoted name of each node."""
        return self.quoted if self.table is None else self.quoted[self.rows]

    def __len__(self) -> int:
        return len(self.rows)


class NodeNames:
    """Looks names up; remembers the names of the present fleet as look-ups and answers need them.

    With a ``helper`` (``native_names``) long lists of known names are looked up by it.
    """

    def __init__(self, helper: ctypes.PyDLL | None = None) -> None:
        self._helper = helper
        self._table: NameTable | None = None
        self._rows: Mapping[str, Row] | None = None
        self._quoted = np.empty(0, object)
        self._words: NameWords | None = None

    @property
    def checks_names(self) -> bool:
        """Return whether names are checked while they are looked up, so that nobody need do it before."""
        return self._table is not None

    def sent(self, args: NodesArgs, fleet: Fleet) -> SentNodes:
        """Return rows and quoted names of what was sent. A name that was sent twice counts once.

        Raises MalformedBody where the list holds anything but strings.
        """
        if len(fleet) >= _WORTH_WORDS:
            quoted = self.quoted(fleet)
            rows = self._table.find(args.names_json) if self._table is not None else None
            if rows is not None:
                return SentNodes(rows, quoted, self._table)
            args = args.checked()
            if self._words is None:
                self._words = NameWords(fleet.names, fleet.rows)
            found = self._words.find(args.names_json)
            if found is not None and not _are_twins(*found):
                return _named(*found, quoted)
        return self._one_by_one(args.checked().names(), fleet)

    def _one_by_one(self, names: Sequence[str], fleet: Fleet) -> SentNodes:
        rows = np.fromiter(map(fleet.rows.get, names, repeat(UNKNOWN_ROW)), np.intp, len(names))
        strangers = np.flatnonzero(rows == UNKNOWN_ROW)
        if _has_twins(rows, strangers, names):
            return self._one_by_one(tuple(dict.fromkeys(names)), fleet)
        quoted = self.quoted(fleet)[rows] if len(fleet) else np.empty(len(rows), object)
        if len(strangers):
            quoted[strangers] = quote([names[at] for at in strangers.tolist()])
        return SentNodes(rows, quoted)

    def known(self, rows: npt.NDArray[np.intp], fleet: Fleet) -> SentNodes:
        """Return rows of nodes that are known, found before, with their quoted names."""
        quoted = self.quoted(fleet)
        return SentNodes(rows, quoted, self._table) if self._table is not None else SentNodes(rows, quoted[rows])

    def quoted(self, fleet: Fleet) -> npt.NDArray[np.object_]:
        """Return the quoted name of every row."""
        if self._rows is not fleet.rows:
            self._rows, self._quoted, self._words = fleet.rows, quote(fleet.names), None
            self._table = NameTable(self._helper, self._quoted.tolist()) if self._helper is not None else None
        return self._quoted


def _named(rows: npt.NDArray[np.intp], listed: Listed, quoted: npt.NDArray[np.object_]) -> SentNodes:
    names_json = quoted[rows]
    for at in np.flatnonzero(rows == UNKNOWN_ROW).tolist():
        names_json[at] = listed.quoted(at)
    return SentNodes(rows, names_json)


def _are_twins(rows: npt.NDArray[np.intp], listed: Listed) -> bool:
    """Return whether some name was sent twice."""
    strangers = np.flatnonzero(rows == UNKNOWN_ROW).tolist()
    if len({listed.quoted(at) for at in strangers}) < len(strangers):
        return True
    return bool((np.bincount(rows + 1)[1:] > 1).any())


def _has_twins(rows: npt.NDArray[np.intp], strangers: npt.NDArray[np.intp], names: Sequence[str]) -> bool:
    """Return whether some name was sent twice."""
    counts = np.bincount(rows + 1)
    return bool((counts[1:] > 1).any()) or len({names[at] for at in strangers.tolist()}) < len(strangers)

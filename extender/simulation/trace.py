"""The openb production trace: nodes and pods of a GPU-sharing cluster, read from the copy beside this module.

Columns, units and origin are in ``data/openb/README.md``. Reading checks every row: a file that was cut or edited is
refused with file, line, column, the value found and what is valid.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeVar

DATA = Path(__file__).with_name("data") / "openb"
DEFAULT_PODS = DATA / "openb_pod_list_default.csv.gz"
CONSTRAINED_PODS = DATA / "openb_pod_list_gpuspec33.csv.gz"
GPU_NODES = DATA / "openb_node_list_gpu_node.csv"

WHOLE_MILLI = 1000
_MAX_CARDS = 8
_QOS = ("LS", "BE", "Burstable", "Guaranteed")
_RowT = TypeVar("_RowT")


class InvalidTrace(ValueError):
    """A trace file cannot be used; the message names file, line, column, the value found and what is valid."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One recorded node: 1/1000 core, MiB of host memory, its cards and their model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """One recorded pod.

    ``gpus``        cards, 0 to 8
    ``gpu_milli``   share of each card, 1..1000, below 1000 only for one card; 0 without cards
    ``models``      accepted card models, empty for any
    ``created_s``, ``duration_s``   seconds since the trace began, and until the pod was deleted
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    qos: str
    created_s: int
    duration_s: int


def load_nodes(path: Path = GPU_NODES) -> tuple[TraceNode, ...]:
    """Return the nodes of a list in its order; raise InvalidTrace."""
    return _load(path, _node)


def load_pods(path: Path = CONSTRAINED_PODS) -> tuple[TracePod, ...]:
    """Return the pods of a list (plain or gzip) in order of creation; raise InvalidTrace."""
    return tuple(sorted(_load(path, _pod), key=lambda pod: pod.created_s))


@dataclass(frozen=True, slots=True)
class _Cells:
    """One row, and where it stands."""

    where: str
    values: Mapping[str, str | None]

    def text(self, column: str) -> str:
        value = self.values.get(column)
        if value is None:
            raise InvalidTrace(f"{self.where}: column {column} is missing")
        return value

    def number(self, column: str, low: int, high: int) -> int:
        found = self.text(column)
        if not found.isdecimal() or not low <= int(found) <= high:
            raise InvalidTrace(f"{self.where}: {column} is {found!r}, valid: a whole number from {low} to {high}")
        return int(found)


_MOST = 2**40


def _node(cells: _Cells) -> TraceNode:
    return TraceNode(
        name=cells.text("sn"),
        cpu_milli=cells.number("cpu_milli", 1, _MOST),
        memory_mib=cells.number("memory_mib", 1, _MOST),
        gpus=cells.number("gpu", 0, _MAX_CARDS),
        model=cells.text("model"),
    )


def _pod(cells: _Cells) -> TracePod:
    gpus = cells.number("num_gpu", 0, _MAX_CARDS)
    low, high = {0: (0, 0), 1: (1, WHOLE_MILLI)}.get(gpus, (WHOLE_MILLI, WHOLE_MILLI))
    created_s = cells.number("creation_time", 0, _MOST)
    qos = cells.text("qos")
    if qos not in _QOS:
        raise InvalidTrace(f"{cells.where}: qos is {qos!r}, valid: {', '.join(_QOS)}")
    return TracePod(
        name=cells.text("name"),
        cpu_milli=cells.number("cpu_milli", 0, _MOST),
        memory_mib=cells.number("memory_mib", 0, _MOST),
        gpus=gpus,
        gpu_milli=cells.number("gpu_milli", low, high),
        models=tuple(dict.fromkeys(model for model in cells.text("gpu_spec").split("|") if model)),
        qos=qos,
        created_s=created_s,
        duration_s=cells.number("deletion_time", created_s, _MOST) - created_s,
    )


def _load(path: Path, read: Callable[[_Cells], _RowT]) -> tuple[_RowT, ...]:
    try:
        rows = tuple(read(cells) for cells in _rows(path))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as problem:
        raise InvalidTrace(f"{path.name}: not readable: {problem}") from problem
    if not rows:
        raise InvalidTrace(f"{path.name}: found no rows, valid: at least one")
    return rows


def _rows(path: Path) -> Iterator[_Cells]:
    with _opened(path) as lines:
        for number, values in enumerate(csv.DictReader(lines), start=2):
            yield _Cells(f"{path.name} line {number}", values)


def _opened(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")

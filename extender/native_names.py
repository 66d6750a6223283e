"""Names in, answers out, by the helper in C (``names.c``): what ``namewords`` and ``wire`` do, in less time.

Optional, like the helper of ``scoring``: a build makes it where a compiler exists. Byte for byte the same answers.
"""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

LIBRARY = f"names-{sysconfig.get_platform()}.helper"
LAYOUT = 3
"""Goes up with every change of a struct or a call: a helper of another layout is not used."""

KEYS = 256

Rows = npt.NDArray[np.intp]


class _NamesStruct(ctypes.Structure):
    """``names`` of ``names.c``."""

    _fields_ = (
        ("blob", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("places", ctypes.c_void_p),
        ("next", ctypes.c_void_p),
        ("mask", ctypes.c_int64),
    )


def open_names(folder: Path | None = None) -> ctypes.PyDLL | None:
    """Return the helper, None where none was built or this machine cannot load it."""
    path = (Path(__file__).parent if folder is None else folder) / LIBRARY
    try:
        library = ctypes.PyDLL(str(path))
        layout = ctypes.c_int64.in_dll(library, "tangram_names_layout").value
        index, find, join = library.tangram_index, library.tangram_find, library.tangram_join
    except (OSError, AttributeError, ValueError):
        return None
    if layout != LAYOUT:
        return None
    pointer, number, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    index.argtypes, index.restype = (pointer,), None
    find.argtypes, find.restype = (pointer, text, number, pointer, pointer), number
    join.argtypes = (pointer, pointer, pointer, number, text, number, pointer, pointer, pointer, pointer)
    join.restype = None
    return library


class Endings:
    """What follows a name, by key 0..255."""

    def __init__(self, endings: Mapping[int, bytes]) -> None:
        self._texts = (ctypes.c_char_p * KEYS)(*(endings.get(key, b"") for key in range(KEYS)))
        self._lengths = np.array([len(endings.get(key, b"")) for key in range(KEYS)], np.int64)
        self.addresses = ctypes.addressof(self._texts), self._lengths.ctypes.data
        self.longest = int(self._lengths.max())


class NameTable:
    """The quoted names of one fleet, by row; an emptied row has none and is never found."""

    def __init__(self, library: ctypes.PyDLL, quoted: Sequence[bytes]) -> None:
        self._library = library
        named = [name if name != b'""' else b"" for name in quoted]
        places = 1 << max(2 * len(named), 2).bit_length()
        self._blob = np.frombuffer(b"".join(named) or b"\0", np.uint8)
        self._offsets = np.zeros(len(named) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, named), np.int64, len(named)), out=self._offsets[1:])
        self._places = np.empty(places, np.int32)
        self._seen = np.zeros(len(named), np.uint8)
        self._written = bytearray(1)
        self._longest = max(map(len, named), default=0)
        self._next = np.zeros(len(named), np.int32)
        self._struct = _NamesStruct(
            self._blob.ctypes.data,
            self._offsets.ctypes.data,
            len(named),
            self._places.ctypes.data,
            self._next.ctypes.data,
            places - 1,
        )
        self._address = ctypes.addressof(self._struct)
        library.tangram_index(self._address)

    def find(self, names_json: bytes) -> Rows | None:
        """Return the row of each name; None unless all are known, each comes once, and no blank or escape is used."""
        rows = np.empty(len(self._seen), np.intp)
        count = self._library.tangram_find(
            self._address, names_json, len(names_json), rows.ctypes.data, self._seen.ctypes.data
        )
        return None if count < 0 else rows[:count]

    def join(self, rows: Rows, keys: npt.NDArray[np.uint8], before: bytes, after: Endings) -> dict[int, memoryview]:
        """Return ``before`` + name + the key's ending, joined by commas, for the rows of each key that occurs.

        A key without an ending counts as one whose ending is empty. What is returned is good until the next call.
        """
        rows, keys = np.ascontiguousarray(rows, np.intp), np.ascontiguousarray(keys, np.uint8)
        ends = np.empty(KEYS, np.int64)
        about = self._address, rows.ctypes.data, keys.ctypes.data, len(rows), before, len(before), *after.addresses
        most = len(rows) * (len(before) + self._longest + after.longest + 1)
        if most > len(self._written):
            self._written = bytearray(most)
        target = (ctypes.c_char * len(self._written)).from_buffer(self._written)
        self._library.tangram_join(*about, ctypes.addressof(target), ends.ctypes.data)
        view, joined, start = memoryview(self._written), {}, 0
        for key in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            end = int(ends[key])
            joined[key] = view[start : end - 1]
            start = end
        return joined

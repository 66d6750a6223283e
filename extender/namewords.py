"""A long list of node names as JSON -> rows of the fleet, a whole column at a time.

Looking 5,000 fresh strings up in a dictionary costs more than judging the nodes. Here no string is made: names are read
out of the body eight bytes at a time, mixed into a hash, looked up in a table and compared with the names of the fleet,
byte for byte. What the table does not settle (two names in one place, a name nobody knows) is looked up one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from scoring.fleet import Row

UNKNOWN_ROW = -1

_WORD = np.dtype("<u8")
_WORD_BYTES = 8
_QUOTE, _COMMA = ord('"'), ord(",")
_BETWEEN = len('","')
_TABLE_BITS = 17
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(_WORD_BYTES + 1)], _WORD)
"""Masks that keep the first 0..8 bytes of a word."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_FOLD, _PLACE = np.uint64(29), np.uint64(64 - _TABLE_BITS)

Rows = npt.NDArray[np.intp]
Words = list[npt.NDArray[np.uint64]]


@dataclass(frozen=True, slots=True)
class Listed:
    """Names as they stand in a body: where each begins and ends, without its quotes."""

    body: bytes
    starts: Rows
    ends: Rows

    def quoted(self, at: int) -> bytes:
        """Return one name with its quotes."""
        return self.body[self.starts[at] - 1 : self.ends[at] + 1]


class NameWords:
    """The names of one fleet, laid out for look-ups. An emptied row has no name and is never found."""

    def __init__(self, names: Sequence[str], rows: Mapping[str, Row]) -> None:
        self._rows = rows
        encoded = [name.encode() for name in names]
        self._lengths = np.fromiter(map(len, encoded), np.intp, len(encoded))
        width = max(1, -(-int(self._lengths.max(initial=1)) // _WORD_BYTES))
        padded = b"".join(name.ljust(width * _WORD_BYTES, b"\0") for name in encoded)
        self._words: Words = list(np.frombuffer(padded, _WORD).reshape(len(encoded), width).T.copy())
        self._table = np.full(1 << _TABLE_BITS, UNKNOWN_ROW, np.intp)
        named = np.flatnonzero(self._lengths)
        self._table[_places([word[named] for word in self._words])] = named

    def find(self, names_json: bytes) -> tuple[Rows, Listed] | None:
        """Return the row of each name, UNKNOWN_ROW where there is none.

        None for a list that is empty, or written otherwise than Go's encoder writes plain names: without blanks and
        escapes, or one of whose names cannot be read.
        """
        listed = _plain(names_json)
        if listed is None:
            return None
        lengths = listed.ends - listed.starts
        words = self._cut(names_json, listed.starts, lengths)
        rows = self._table[_places(words)]
        same = (rows >= 0) & (self._lengths[rows] == lengths)
        for mine, theirs in zip(self._words, words, strict=True):
            same &= mine[rows] == theirs
        for at in np.flatnonzero(~same).tolist():
            name = _name(listed.quoted(at))
            if name is None:
                return None
            rows[at] = self._rows.get(name, UNKNOWN_ROW)
        return rows, listed

    def _cut(self, body: bytes, starts: Rows, lengths: Rows) -> Words:
        """Return the names' bytes, word by word, zeros after the end."""
        count = len(self._words)
        padded = np.frombuffer(body + bytes(count * _WORD_BYTES), np.uint8)
        sliding = np.ndarray((len(body),), _WORD, padded, strides=(1,))
        shortest = int(lengths.min())
        words = []
        for number in range(count):
            before = number * _WORD_BYTES
            word = sliding[np.minimum(starts + before, len(body) - 1)]
            if shortest < before + _WORD_BYTES:
                word &= _MASKS[np.minimum(np.maximum(lengths - before, 0), _WORD_BYTES)]
            words.append(word)
        return words


def _places(words: Words) -> npt.NDArray[np.uint64]:
    """Return the place of each name in the table."""
    mixed = words[0] * _MULTIPLIER
    for word in words[1:]:
        mixed ^= mixed >> _FOLD
        mixed += word
        mixed *= _MULTIPLIER
    mixed ^= mixed >> _FOLD
    mixed *= _MULTIPLIER
    return mixed >> _PLACE


def _plain(names_json: bytes) -> Listed | None:
    """Return where the names of a plain list stand; None where it is not one."""
    if b"\\" in names_json:
        return None
    body = np.frombuffer(names_json, np.uint8)
    quotes = np.flatnonzero(body == _QUOTE)
    starts, ends = quotes[::2] + 1, quotes[1::2]
    if not len(starts) or len(starts) != len(ends) or starts[0] != len('["') or ends[-1] != len(body) - len('"]'):
        return None
    if (starts[1:] - ends[:-1] != _BETWEEN).any() or (body[ends[:-1] + 1] != _COMMA).any():
        return None
    return Listed(names_json, starts, ends)


def _name(quoted: bytes) -> str | None:
    try:
        return msgspec.json.decode(quoted, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None

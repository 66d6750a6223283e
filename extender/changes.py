"""What a reflector tells: objects set, objects gone, list complete; and how one list differs from what was known.

An object is known by namespace, name, UID and resource version. An unchanged one is never told twice, a vanished one is
told as gone, and where a name was taken by a new object, the old UID is told as gone first (cases B5 and B6). Resource
versions are opaque: compared for equality, never for order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from extender.objects import Metadata


class KubeObject(Protocol):
    """Any decoded object."""

    @property
    def metadata(self) -> Metadata:
        """Its name, UID and resource version."""


ObjectT = TypeVar("ObjectT", bound=KubeObject)
ObjectT_contra = TypeVar("ObjectT_contra", bound=KubeObject, contravariant=True)


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """One object in time; ``namespace`` is empty for nodes. A re-created pod has the same name and another UID."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, metadata: Metadata) -> ObjectKey:
        """Return the key of an object with this metadata."""
        return cls(metadata.namespace, metadata.name, metadata.uid)


@dataclass(frozen=True, slots=True)
class Set(Generic[ObjectT]):
    """The object is new, or is no longer as it was told last."""

    item: ObjectT


@dataclass(frozen=True, slots=True)
class Gone:
    """The object no longer exists."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything that a complete list showed has been told; comes again after each later list."""


Change: TypeAlias = Set[ObjectT] | Gone | Synced


class ObjectHandler(Protocol[ObjectT_contra]):
    """Takes a reflector's changes on the event loop, in order; the same change may come again after an error."""

    def on_set(self, item: ObjectT_contra) -> None:
        """Take an object that is new or changed."""

    def on_delete(self, key: ObjectKey) -> None:
        """Let go of the object of that UID."""

    def on_synced(self) -> None:
        """Note that a complete list has been told."""


class KnownObjects:
    """Names, UIDs and versions of everything told so far: one entry per object that exists."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[str, str]] = {}
        self._unseen: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._known)

    def begin_list(self) -> None:
        """Start a list: whatever it does not show has vanished. An unfinished list before this one is forgotten."""
        self._unseen = set(self._known)

    def finish_list(self) -> list[ObjectKey]:
        """End a complete list and return what vanished since the last one."""
        vanished = [ObjectKey(*place, self._known.pop(place)[0]) for place in sorted(self._unseen)]
        self._unseen = set()
        return vanished

    def see(self, key: ObjectKey, version: str) -> tuple[ObjectKey | None, bool]:
        """Note an object; return the older one that had its name, if any, and whether this one is new or changed."""
        place = (key.namespace, key.name)
        self._unseen.discard(place)
        before = self._known.get(place)
        self._known[place] = (key.uid, version)
        return _replaced(key, before), before != (key.uid, version)

    def see_unreadable(self, key: ObjectKey) -> ObjectKey | None:
        """Note an object that cannot be decoded: what was told of it stays; return the older one, if any."""
        place = (key.namespace, key.name)
        self._unseen.discard(place)
        replaced = _replaced(key, self._known.get(place))
        if replaced is not None:
            del self._known[place]
        return replaced

    def remove(self, key: ObjectKey) -> bool:
        """Forget an object; return whether it was known under that UID."""
        place = (key.namespace, key.name)
        before = self._known.get(place)
        if before is None or before[0] != key.uid:
            return False
        del self._known[place]
        self._unseen.discard(place)
        return True


def _replaced(key: ObjectKey, before: tuple[str, str] | None) -> ObjectKey | None:
    if before is None or before[0] == key.uid:
        return None
    return ObjectKey(key.namespace, key.name, before[0])

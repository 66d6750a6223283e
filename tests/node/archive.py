"""Container images as files: layers are tar files, an image is an archive that `ctr images import` reads.

The format is the one `docker save` writes: a manifest, a configuration, and a layer after another.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_CREATED = "2020-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Image:
    """An image to be written: its name with the tag, layers from the lowest up, and what its containers run."""

    name: str
    layers: tuple[Path, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


class Layer:
    """A layer being written; parents of what is added appear as directories that everybody may enter."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._seen: set[str] = set()

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Add a directory, with those above it."""
        path = path.strip("/")
        if not path or path in self._seen:
            return
        self._parents(path)
        self._seen.add(path)
        self._tar.addfile(_entry(path, tarfile.DIRTYPE, mode=mode))

    def text(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Add a file with some content."""
        data = content.encode() if isinstance(content, str) else content
        self._parents(path.strip("/"))
        entry = _entry(path.strip("/"), tarfile.REGTYPE, mode=mode)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._parents(path.strip("/"))
        entry = _entry(path.strip("/"), tarfile.SYMTYPE)
        entry.linkname = target
        self._tar.addfile(entry)

    def file(self, path: str, source: Path) -> None:
        """Add a copy of a file, what a link leads to included; its times stay, since byte code is judged by them."""
        path = path.strip("/")
        if path in self._seen:
            return
        self._parents(path)
        self._seen.add(path)
        entry = _entry(path, tarfile.REGTYPE, mode=source.stat().st_mode & 0o755)
        entry.size, entry.mtime = source.stat().st_size, int(source.stat().st_mtime)
        with source.open("rb") as data:
            self._tar.addfile(entry, data)

    def tree(self, path: str, source: Path, *, without: Iterable[str] = ()) -> None:
        """Add every file below a folder, except below folders of the names in `without`."""
        left_out = set(without)
        for each in sorted(source.rglob("*")):
            inside = each.relative_to(source)
            if each.is_file() and left_out.isdisjoint(inside.parts):
                self.file(f"{path}/{inside}", each)

    def _parents(self, path: str) -> None:
        above, _, _ = path.rpartition("/")
        self.directory(above)


def write_image(image: Image, target: Path) -> Path:
    """Write the archive of an image."""
    digests = [_digest(layer) for layer in image.layers]
    document = {
        "architecture": "amd64",
        "os": "linux",
        "created": _CREATED,
        "config": {
            "Entrypoint": list(image.entrypoint),
            "Cmd": list(image.command),
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "User": image.user,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in digests]},
        "history": [{"created": _CREATED} for _ in digests],
    }
    configuration = json.dumps(document).encode()
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [image.name], "Layers": [f"{each}/layer.tar" for each in digests]}]
    with tarfile.open(target, "w") as tar:
        archive = Layer(tar)
        archive.text(name, configuration)
        for digest, layer in zip(digests, image.layers, strict=True):
            archive.file(f"{digest}/layer.tar", layer)
        archive.text("manifest.json", json.dumps(manifest))
    return target


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _entry(path: str, kind: bytes, mode: int = 0o755) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = kind, mode
    return entry

"""``tangram report``: one archive with everything that somebody who helps will ask for.

No secrets are in it: what the extender serves holds none. Names of pods and nodes are; look before you send it.
"""

from __future__ import annotations

import io
import json
import platform
import tarfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from extender.cli.arguments import Access, Output
from extender.cli.client import Client, client_for
from extender.cli.output import print_json, print_lines
from extender.cli.problems import WRONG_USAGE, CliProblem

_PARTS: tuple[tuple[str, ...], ...] = (
    ("healthz",),
    ("readyz",),
    ("metrics",),
    ("v1", "devices"),
    ("v1", "fleet"),
    ("v1", "decisions"),
    ("v1", "usage"),
    ("v1", "policies"),
    ("v1", "audit"),
)


def report(access: Access, file: Path) -> None:
    """Write the bundle and say what is in it; a part that cannot be had is named and does not stop the rest."""
    client = client_for(access)
    client.text("healthz")
    parts, missing = _gathered(client)
    parts["about.json"] = json.dumps(_about(access), indent=2).encode()
    parts["missing.json"] = json.dumps(missing, indent=2).encode()
    try:
        _write(file, parts)
    except OSError as error:
        raise CliProblem(f"--file {file}: {error}", WRONG_USAGE) from error
    if access.output is Output.JSON:
        print_json({"file": str(file), "parts": sorted(parts), "missing": missing})
        return
    print_lines([f"{file}: {len(parts)} parts. It names pods and nodes; look at it before you send it."])
    print_lines(f"  missing {name}: {why}" for name, why in missing.items())


def _gathered(client: Client) -> tuple[dict[str, bytes], dict[str, str]]:
    parts: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    for path in _PARTS:
        name = path[-1] + (".json" if path[0] == "v1" else ".txt")
        try:
            parts[name] = client.text(*path).encode()
        except CliProblem as problem:
            missing[name] = str(problem)
    return parts, missing


def _about(access: Access) -> dict[str, object]:
    try:
        own = version("tangram-gpu")
    except PackageNotFoundError:
        own = "not installed"
    where = access.url or f"namespace {access.system_namespace}"
    return {"tangram": own, "python": platform.python_version(), "asked": where, "at": time.time()}


def _write(file: Path, parts: dict[str, bytes]) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in sorted(parts.items()):
            entry = tarfile.TarInfo(f"tangram-report/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))

"""Builds the programs of a real control plane with the plain Go tool chain, once, into a cache outside the checkout.

`python -m tests.controlplane.build [--kubernetes 1.35.4] [PROGRAM ...]` builds the named programs, by default those
that the tests start. Nothing is downloaded but Go modules, checked against the committed sums. The cache is keyed by
the module files, the Go version and the flags; a file lock lets parallel runs meet once.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.modules import (
    ETCD_PROGRAMS,
    HELM_PROGRAMS,
    KUBERNETES_PROGRAMS,
    KUBERNETES_VERSION,
    GoModule,
    etcd_module,
    helm_module,
    kubernetes_module,
)

NEEDED = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
PROGRAMS = (*ETCD_PROGRAMS, *KUBERNETES_PROGRAMS, *HELM_PROGRAMS)
_PROGRESS_EVERY_S = 15.0
_LOCK_POLL_S = 0.2


class GoMissing(RuntimeError):
    """There is no `go` command, so no control plane can be built."""


class BuildFailed(RuntimeError):
    """The Go compiler refused a program; the message ends with its last lines."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The built programs of one Kubernetes version; a program that was not asked for is built when its path is."""

    kubernetes_version: str

    def path(self, program: str) -> Path:
        """Return the path of one program of `PROGRAMS`, building it first if the cache lacks it."""
        return ensure(program, kubernetes_version=self.kubernetes_version)


def binaries(programs: Sequence[str] = NEEDED, *, kubernetes_version: str = KUBERNETES_VERSION) -> Binaries:
    """Build what the cache lacks of `programs`; about eight minutes on two cores when cold, milliseconds when warm."""
    for program in programs:
        ensure(program, kubernetes_version=kubernetes_version)
    return Binaries(kubernetes_version)


def ensure(program: str, *, kubernetes_version: str = KUBERNETES_VERSION) -> Path:
    """Return the path of one built program. Raises GoMissing without Go, BuildFailed when the compiler refuses."""
    if program not in PROGRAMS:
        message = f"program {program!r} is not one of {', '.join(PROGRAMS)}"
        raise ValueError(message)
    _go_version()
    if program in ETCD_PROGRAMS:
        return ensure_of(etcd_module(), program)
    if program in HELM_PROGRAMS:
        return ensure_of(helm_module(), program)
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / f"module-{kubernetes_version}.lock", f"the module of Kubernetes {kubernetes_version}"):
        module = kubernetes_module(kubernetes_version, cache / "modules")
    return ensure_of(module, program)


def ensure_of(module: GoModule, program: str) -> Path:
    """Return the path of a built program of any module. Raises as `ensure` does."""
    go_version = _go_version()
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{module.name}-v{module.version}-{_key(module, go_version)}" / program
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        with _lock(target.with_name(f"{program}.lock"), program):
            if not target.exists():
                _build(module, program, target)
    return target


def cache_directory() -> Path:
    """Return where programs are kept: below $TANGRAM_CACHE, else $XDG_CACHE_HOME/tangram, else ~/.cache/tangram."""
    named = os.environ.get("TANGRAM_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tangram"
    return base / "controlplane"


def _go_version() -> str:
    if shutil.which("go") is None:
        message = "the real control plane is built with Go 1.26 or newer, and there is no `go` command on PATH"
        raise GoMissing(message)
    return subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()


def _key(module: GoModule, go_version: str) -> str:
    content = hashlib.sha256()
    for part in (
        (module.directory / "go.mod").read_bytes(),
        (module.directory / "go.sum").read_bytes(),
        go_version.encode(),
        module.linker_flags.encode(),
    ):
        content.update(hashlib.sha256(part).digest())
    return content.hexdigest()[:16]


def _build(module: GoModule, program: str, target: Path) -> None:
    label = f"{program} v{module.version}"
    unfinished = target.with_name(f"{program}.unfinished")
    command = ["go", "build", "-mod=readonly", "-trimpath", "-ldflags", module.linker_flags]
    command += ["-o", str(unfinished), module.packages[program]]
    log = target.with_name(f"{program}.log")
    with log.open("w", encoding="utf-8") as output:
        # Without cgo the programs depend on nothing of the machine, and no C compiler is needed.
        environment = {**os.environ, "CGO_ENABLED": "1" if module.cgo else "0", "GOWORK": "off"}
        build = subprocess.Popen(command, cwd=module.directory, stdout=output, stderr=output, env=environment)
        try:
            _report_until_done(build, label)
        finally:
            if build.poll() is None:
                build.terminate()
                build.wait()
    if build.returncode:
        message = f"building {label} ended with {build.returncode}:\n{log.read_text(encoding='utf-8')[-3000:]}"
        raise BuildFailed(message)
    unfinished.replace(target)


def _report_until_done(build: subprocess.Popen[bytes], label: str) -> None:
    started = time.monotonic()
    _say(f"building {label} (kept for the next time)")
    while True:
        try:
            build.wait(timeout=_PROGRESS_EVERY_S)
        except subprocess.TimeoutExpired:
            _say(f"building {label}: {time.monotonic() - started:.0f} s so far")
        else:
            _say(f"building {label}: done after {time.monotonic() - started:.0f} s")
            return


@contextmanager
def _lock(path: Path, label: str) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as file:
        started = said = time.monotonic()
        while not _try_lock(file.fileno()):
            if time.monotonic() - said > _PROGRESS_EVERY_S:
                said = time.monotonic()
                _say(f"waiting for another run that builds {label}: {said - started:.0f} s so far")
            time.sleep(_LOCK_POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _say(line: str) -> None:
    print(f"control plane: {line}", file=sys.stderr, flush=True)


def main() -> int:
    """Build the programs named on the command line and print their paths."""
    parser = argparse.ArgumentParser(description="Build the real control plane that the tests start")
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}; default: {' '.join(NEEDED)}"
    )
    parser.add_argument("--kubernetes", default=KUBERNETES_VERSION, metavar="VERSION")
    arguments = parser.parse_args()
    try:
        for program in arguments.programs or NEEDED:
            print(ensure(program, kubernetes_version=arguments.kubernetes))
    except (GoMissing, BuildFailed, ValueError) as problem:
        _say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

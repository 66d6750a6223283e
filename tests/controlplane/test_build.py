"""The builder: what is built once is found again, and what cannot be built says why."""

import multiprocessing
import os
import re
import stat
from pathlib import Path

import pytest

from tests.controlplane import build
from tests.controlplane.modules import COMMITTED, ETCD_VERSION, KUBERNETES_PROGRAMS, KUBERNETES_VERSION

FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
if [ -n "$FAIL" ]; then echo "main.go:1: $FAIL"; exit 1; fi
sleep 0.3
echo built >> "$COUNT"
while [ "$1" != -o ]; do shift; done
echo program > "$2"
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that takes no time and counts its runs; the real one is behind every other test of this folder."""
    command = tmp_path / "bin" / "go"
    command.parent.mkdir()
    command.write_text(FAKE_GO)
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TANGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    (tmp_path / "count").touch()
    return tmp_path


def runs(place: Path) -> int:
    return len((place / "count").read_text().splitlines())


def test_program_is_built_once_and_kept_outside_the_checkout(go: Path) -> None:
    first = build.ensure("etcd")
    assert first == build.ensure("etcd")
    assert first.read_text() == "program\n"
    assert first.is_relative_to(go / "cache")
    assert runs(go) == 1


def test_another_go_version_builds_anew(go: Path) -> None:
    first = build.ensure("etcd")
    command = go / "bin" / "go"
    command.write_text(command.read_text().replace("go1.99.0", "go1.99.1"))
    assert build.ensure("etcd") != first
    assert runs(go) == 2


def test_parallel_runs_build_once(go: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        paths = pool.map(build.ensure, ["etcd"] * 3)
    assert len(set(paths)) == 1
    assert runs(go) == 1


def test_compiler_error_is_shown_and_leaves_nothing_behind(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "undefined: x")
    with pytest.raises(build.BuildFailed, match=f"etcd v{ETCD_VERSION} ended with 1:\nmain.go:1: undefined: x"):
        build.ensure("etcd")
    monkeypatch.delenv("FAIL")
    assert build.ensure("etcd").exists()


def test_missing_go_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.GoMissing, match="no `go` command"):
        build.ensure("etcd")


def test_unknown_program_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="'kubelet' is not one of etcd, kube-apiserver"):
        build.ensure("kubelet")


def test_committed_module_names_the_default_version_everywhere() -> None:
    text = (COMMITTED / "kubernetes" / "go.mod").read_text()
    staging = re.findall(r"^\t(k8s\.io/\S+) => \1 v0\.(\S+)$", text, re.MULTILINE)
    assert f"k8s.io/kubernetes v{KUBERNETES_VERSION}" in text
    assert len(staging) > 20
    assert {f"1.{version}" for _, version in staging} == {KUBERNETES_VERSION}
    assert all(f"k8s.io/kubernetes/cmd/{program}" in text for program in KUBERNETES_PROGRAMS)
    assert f"go.etcd.io/etcd/server/v3 v{ETCD_VERSION}" in (COMMITTED / "etcd" / "go.mod").read_text()

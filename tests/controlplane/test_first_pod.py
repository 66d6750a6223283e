"""What README promises of `make cluster`: its kubectl line, the page, and the first pod that runs."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.controlplane.api import wait_for
from tests.controlplane.build import Binaries
from tests.controlplane.modules import KUBERNETES_VERSION

README = Path(__file__).parents[2] / "README.md"
NODES = 5  # the fifth kind of the mixed fleet is the first of Ampere


class Promised(NamedTuple):
    """What `make cluster` said."""

    kubectl: list[str]
    page: str


@pytest.fixture(scope="module")
def cluster(control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Promised]:
    assert control_plane_binaries.kubernetes_version == KUBERNETES_VERSION
    said = tmp_path_factory.mktemp("cluster") / "said"
    command = [sys.executable, "-m", "tests.controlplane.cluster", "--nodes", str(NODES)]
    # A group of its own: Ctrl-C reaches the whole group, and the children must not take it for themselves first.
    with said.open("w") as output, subprocess.Popen(command, stderr=output, start_new_session=True) as process:
        try:
            wait_for("it is up", lambda: "Ctrl-C ends" in said.read_text() or process.poll(), within_s=150)
            kubectl = re.search(r"^  (\S+ --kubeconfig \S+) get", said.read_text(), re.MULTILINE)
            page = re.search(r"the live page is (\S+)", said.read_text())
            assert kubectl is not None, said.read_text()
            assert page is not None, said.read_text()
            yield Promised(kubectl.group(1).split(), page.group(1))
        finally:
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(timeout=30) == 0, said.read_text()


def first_pod() -> str:
    """Return the manifest in README's section about a first pod."""
    section = README.read_text(encoding="utf-8").partition("\n## A first pod\n")[2].partition("\n## ")[0]
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(manifest)


def test_first_pod_of_readme_runs(cluster: Promised) -> None:
    def kubectl(*arguments: str, given: str | None = None) -> str:
        command = [*cluster.kubectl, *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=60).stdout

    kubectl("apply", "-f", "-", given=first_pod())
    kubectl("wait", "pod/first", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
    node = kubectl("get", "pod", "first", "-o", "jsonpath={.spec.nodeName}")
    assert node.startswith("gpu-a100")
    assert '"memory_mib":8192' in kubectl("get", "pod", "first", "-o", "jsonpath={.metadata.annotations}").replace(
        "\\", ""
    )


def test_page_is_where_it_is_said_to_be(cluster: Promised) -> None:
    answer = httpx2.get(cluster.page, timeout=10, trust_env=False)
    assert answer.is_success
    assert answer.headers["Content-Type"].startswith("text/html")

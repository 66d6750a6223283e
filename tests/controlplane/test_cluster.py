"""The cluster for people comes up whole, and goes down when asked."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.controlplane.api import wait_for
from tests.controlplane.build import Binaries

RUN = """
    import sys
    from tests.controlplane.cluster import Program, run_cluster
    from tests.controlplane.kubelet import HollowNode
    beside = Program("beside", (sys.executable, "-c", "import time; time.sleep(600)"))
    run_cluster([HollowNode("gpu-a")], programs=lambda cluster: [beside])
"""


def test_cluster_answers_kubectl_until_it_is_interrupted(control_plane_binaries: Binaries, tmp_path: Path) -> None:
    said = tmp_path / "said"
    # A group of its own: Ctrl-C reaches the whole group, and the children must not take it for themselves first.
    with (
        said.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(RUN)], stderr=output, start_new_session=True
        ) as cluster,
    ):
        try:
            wait_for("it says how", lambda: "Ctrl-C ends" in said.read_text() or cluster.poll(), within_s=120)
            line = re.search(r"^  (\S+ --kubeconfig \S+) get", said.read_text(), re.MULTILINE)
            assert line is not None, said.read_text()
            command = [*line.group(1).split(), "get", "nodes", "--no-headers"]
            listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
            assert listed.stdout.split()[:2] == ["gpu-a", "Ready"]
        finally:
            os.killpg(cluster.pid, signal.SIGINT)
            assert cluster.wait(timeout=30) == 0, said.read_text()
    logs = re.search(r"logs are in (\S+);", said.read_text())
    assert logs is not None
    assert not Path(logs.group(1)).exists()

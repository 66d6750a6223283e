from __future__ import annotations

import json
import subprocess
import sys
import tarfile

import pytest

from extender.cli.commands import run
from node_agent.report import Usage
from tests.controlplane.api import wait_for
from tests.extender.cli.stage import staged
from tests.support.builders import bound, device


@pytest.fixture(scope="module")
def stage():
    with staged() as made:
        yield made


@pytest.fixture
def tangram(stage, monkeypatch, capsys):
    """Run one command against the stage; returns exit status, output and errors."""

    def call(*arguments: str, url: str | None = None) -> tuple[int, str, str]:
        monkeypatch.setenv("TANGRAM_URL", stage.url if url is None else url)
        monkeypatch.setattr(sys, "argv", ["tangram", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return call


@pytest.fixture(scope="module")
def pods(stage):
    """One pod that runs, one that waits."""
    running = stage.create_pod("running", {"gpu-memory": 8192, "gpu-compute": 50})
    assert stage.schedule(running, "a") == ""
    waiting = stage.create_pod("waiting", {"gpu-memory": 200_000})
    assert stage.schedule(waiting, "a", "b") == "refused"
    return {"running": running, "waiting": waiting}


class TestExplain:
    def test_waiting_pod_is_explained_in_words(self, tangram, pods):
        status, out, _ = tangram("explain", "pod", "waiting", "-n", "ml")
        assert status == 0
        assert "Pod ml/waiting waits: none of 2 nodes can take it now." in out
        assert "GPU-b (A100-SXM4-80GB): has 81920 MiB in all" in out
        assert "ask 81920 MiB of each GPU (gpu-memory: 81920) (1 node would do)" in out

    def test_every_attempt_is_listed_with_its_reasons(self, tangram, pods):
        _, out, _ = tangram("explain", "pod", "waiting", "-n", "ml")
        assert "filter   refused  0/2 nodes  2 DeviceTooSmall" in out

    def test_what_ends_with_the_process_is_said(self, tangram, pods):
        assert "end with its process" in tangram("explain", "pod", "waiting", "-n", "ml")[1]

    def test_running_pod_shows_what_it_has(self, tangram, pods):
        _, out, _ = tangram("explain", "pod", "running", "-n", "ml")
        assert "container main has 8192 MiB, 50 % compute of GPU-a (time-slicing)" in out

    def test_json_holds_the_numbers(self, tangram, pods):
        _, out, _ = tangram("explain", "pod", "waiting", "-n", "ml", "-o", "json")
        found = json.loads(out)
        assert found["state"] == "waiting"
        assert {node["node"] for node in found["diagnosis"]["nodes"]} == {"a", "b"}
        assert found["attempts"][0]["reasons"] == {"DeviceTooSmall": 2}

    def test_unknown_pod_is_status_4(self, tangram):
        status, _, err = tangram("explain", "pod", "nobody")
        assert (status, err) == (
            4,
            "tangram: pod default/nobody does not exist, and nothing is remembered of it\n",
        )

    def test_why_not_tells_of_each_device(self, tangram, pods):
        _, out, _ = tangram("why-not", "a", "waiting", "-n", "ml")
        assert out.splitlines() == [
            "Node a: request is larger than any GPU of the node",
            "  GPU-a (T4): has 15360 MiB in all",
        ]

    def test_why_not_of_a_node_that_fits_shows_the_score(self, tangram, pods):
        _, out, _ = tangram("why-not", "b", "running", "-n", "ml")
        assert out.startswith("Node b fits, score ")
        assert "It would give main: GPU-b" in out

    @pytest.mark.parametrize(("node", "pod"), [("nowhere", "waiting"), ("a", "nobody")])
    def test_why_not_of_what_is_not_there_is_status_4(self, tangram, pods, node, pod):
        assert tangram("why-not", node, pod, "-n", "ml")[0] == 4


class TestTop:
    def test_booked_stands_beside_measured(self, tangram, pods):
        _, out, _ = tangram("top", "--node", "a")
        row = next(line for line in out.splitlines() if "GPU-a" in line)
        assert row.split() == [
            "a",
            "GPU-a",
            "T4",
            "time-slicing",
            "healthy",
            "1",
            "15.0",
            "8.0",
            "-",
            "0.0",
            "50%",
            "0%",
        ]

    def test_json_has_a_row_a_device(self, tangram):
        found = json.loads(tangram("-o", "json", "top")[1])
        assert [row["uuid"] for row in found["devices"]] == ["GPU-a", "GPU-b"]

    def test_order_by_what_is_booked(self, tangram, pods):
        found = json.loads(tangram("top", "--sort", "booked", "-o=json")[1])
        assert found["devices"][0]["uuid"] == "GPU-a"

    def test_node_without_devices_is_status_4(self, tangram):
        assert tangram("top", "--node", "nowhere")[0] == 4

    def test_usage_says_nobody_where_nobody_idles(self, tangram):
        assert "Booked and idle for 60 minutes or more: nobody" in tangram("usage")[1]


class TestAudit:
    def test_agreement_is_status_0(self, tangram, pods):
        assert tangram("audit")[:2] == (0, "Books, annotations and measurements agree.\n")

    def test_differences_are_status_1_and_say_what_to_do(self, stage, tangram, pods):
        held = device("GPU-b", foreign_mib=4000)
        stage.report("b", held, usage=(Usage(pod_uid="uid-x", uuid="GPU-b", memory_mib=10),))
        try:
            status, out, _ = tangram("audit")
            found = json.loads(tangram("audit", "-o", "json")[1])["findings"]
        finally:
            stage.report("b", device("GPU-b"))
        assert status == 1
        assert "b GPU-b: 4000 MiB are held by processes of no pod" in out
        assert "What to do: " in out
        assert [each["kind"] for each in found] == ["process-without-pod", "use-without-booking"]


class TestAuditOfWhatWasPlanted:
    """Issue by issue what an audit is for, each planted in a running extender and found by the command."""

    @pytest.fixture
    def found(self, stage, tangram):
        """Run the audit until it has the kind that was planted; return its rows and its words."""

        def audit(kind: str) -> tuple[list[dict[str, str]], str]:
            def planted() -> list[dict[str, str]]:
                status, out, _ = tangram("audit", "-o", "json")
                rows = [row for row in json.loads(out)["findings"] if row["kind"] == kind]
                assert not rows or status == 1
                return rows

            return wait_for(f"the audit finds {kind}", planted), tangram("audit")[1]

        yield audit
        for each in stage.cluster.list_pods():
            if each["metadata"]["name"].startswith("planted"):
                stage.cluster.delete_pod("ml", each["metadata"]["name"], 0)
        stage.report("b", device("GPU-b"))
        wait_for("all that was planted is cleared away as the audit says", lambda: tangram("audit")[0] == 0)

    def test_annotation_without_booking(self, stage, found):
        planted = stage.create_bound_pod("planted", "b", "GPU-b", 1024)
        uid = planted["metadata"]["uid"]
        wait_for("the pod is booked", lambda: stage.app.services.store.ledger.get(uid))
        stage.on_loop(lambda app: app.services.store.release(uid))
        (row,), words = found("annotation-without-booking")
        assert (row["node"], row["uuid"], row["pod"]) == ("b", "GPU-b", "ml/planted")
        assert "the extender missed this pod" in words

    def test_booking_without_pod(self, stage, found):
        ghost = bound("planted-ghost", "GPU-b", memory_mib=1024, compute_milli=10, node="b")
        stage.on_loop(lambda app: app.services.store.set_pod(ghost))
        (row,), words = found("booking-without-pod")
        assert (row["node"], row["uuid"], row["pod"]) == ("b", "GPU-b", "default/planted-ghost")
        assert "the pod is gone and its share is still booked" in words
        stage.on_loop(lambda app: app.services.store.release(ghost.pod.uid))

    def test_device_over(self, stage, found):
        for name in ("planted-1", "planted-2"):
            stage.create_bound_pod(name, "b", "GPU-b", 50_000)
        (row,), words = found("device-over")
        assert (row["node"], row["uuid"]) == ("b", "GPU-b")
        assert row["pod"] == "ml/planted-1, ml/planted-2"
        assert "delete one of the pods on it" in words

    def test_unknown_uuid(self, stage, found):
        stage.create_bound_pod("planted", "b", "GPU-of-old", 1024)
        (row,), words = found("unknown-uuid")
        assert (row["node"], row["uuid"], row["pod"]) == ("b", "GPU-of-old", "ml/planted")
        assert "no agent reports this device" in words

    def test_process_without_pod(self, stage, found):
        stage.report("b", device("GPU-b", foreign_mib=4000))
        (row,), words = found("process-without-pod")
        assert (row["node"], row["uuid"], row["pod"]) == ("b", "GPU-b", "")
        assert "find it on the node" in words


class TestPolicy:
    def _file(self, tmp_path, text):
        path = tmp_path / "policy.yaml"
        path.write_text(text)
        return str(path)

    def test_good_policies_are_listed_with_their_weights(self, tangram, tmp_path):
        status, out, _ = tangram("policy", "check", self._file(tmp_path, "mine: {packing: 3, load: 1}"))
        assert status == 0
        assert "mine: load 0.25, packing 0.75" in out

    def test_misspelt_scorer_is_status_1_with_the_nearest(self, tangram, tmp_path):
        status, out, _ = tangram("policy", "check", self._file(tmp_path, "mine: {paking: 3}"))
        assert status == 1
        assert "nearest: packing" in out

    def test_default_that_does_not_exist_is_found(self, tangram, tmp_path):
        text = "policy: fastest\npolicies: {mine: {packing: 1}}"
        status, out, _ = tangram("policy", "check", self._file(tmp_path, text), "-o", "json")
        assert status == 1
        assert "fastest" in json.loads(out)["problems"][0]

    @pytest.mark.parametrize("text", ["[1, 2]", "{", "7"])
    def test_what_is_no_mapping_is_status_2(self, tangram, tmp_path, text):
        assert tangram("policy", "check", self._file(tmp_path, text))[0] == 2

    def test_policies_in_force_are_listed(self, tangram):
        assert "binpack (default): " in tangram("policy", "list")[1]


class TestCordon:
    def test_cordoned_device_takes_no_new_pods_until_it_is_uncordoned(self, stage, tangram):
        api = ("--api-server", stage.api_url)
        assert tangram("cordon", "GPU-b", *api) == (0, "GPU-b on node b gets no new pods; those on it stay.\n", "")
        stage.report("b", device("GPU-b"))
        row = json.loads(tangram("top", "--node", "b", "-o", "json")[1])["devices"][0]
        assert row["problem"] == "cordoned by the operator"
        status, out, _ = tangram("uncordon", "GPU-b", "-o", "json", *api)
        assert (status, json.loads(out)["cordoned"]) == (0, [])

    def test_others_on_the_list_stay(self, stage, tangram):
        api = ("--node", "a", "--api-server", stage.api_url, "-o", "json")
        tangram("cordon", "GPU-1", *api)
        assert json.loads(tangram("cordon", "GPU-2", *api)[1])["cordoned"] == ["GPU-1", "GPU-2"]
        assert json.loads(tangram("uncordon", "GPU-1", *api)[1])["cordoned"] == ["GPU-2"]
        assert json.loads(tangram("uncordon", "GPU-2", *api)[1])["cordoned"] == []

    def test_what_is_no_uuid_is_status_2(self, stage, tangram):
        assert tangram("cordon", "0", "--api-server", stage.api_url)[0] == 2

    def test_device_of_nobody_is_status_4(self, stage, tangram):
        assert tangram("cordon", "GPU-x", "--api-server", stage.api_url)[0] == 4

    def test_node_that_does_not_exist_is_status_4(self, stage, tangram):
        assert tangram("cordon", "GPU-x", "--node", "nowhere", "--api-server", stage.api_url)[0] == 4


class TestReport:
    def test_bundle_holds_every_part(self, tangram, tmp_path, pods):
        path = tmp_path / "r.tar.gz"
        assert tangram("report", "-f", str(path))[0] == 0
        with tarfile.open(path) as archive:
            names = {name.removeprefix("tangram-report/") for name in archive.getnames()}
            metrics = archive.extractfile("tangram-report/metrics.txt").read()
        assert names >= {"about.json", "audit.json", "decisions.json", "fleet.json", "metrics.txt", "readyz.txt"}
        assert b"tangram_extender_nodes" in metrics

    def test_path_that_cannot_be_written_is_status_2(self, tangram, tmp_path):
        assert tangram("report", "-f", str(tmp_path / "no" / "r.tar.gz"))[0] == 2


class TestReach:
    def test_nobody_there_is_status_3_and_says_what_to_give(self, tangram):
        status, _, err = tangram("top", url="http://127.0.0.1:9")
        assert status == 3
        assert "the extender at http://127.0.0.1:9 does not answer" in err
        assert "--url" in err

    @pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "http://x:port"])
    def test_what_is_no_address_is_status_2(self, tangram, url):
        status, _, err = tangram("--url", url, "top")
        assert status == 2
        assert repr(url) in err

    def test_no_kubeconfig_says_so(self, tangram, tmp_path):
        status, _, err = tangram("top", "--kubeconfig", str(tmp_path / "none"), url="")
        assert status == 3
        assert "cannot be used" in err

    def test_something_else_that_answers_is_told_apart(self, stage, tangram):
        status, _, err = tangram("top", url=f"{stage.url}/../x")
        assert status in (0, 3)
        assert "Traceback" not in err


def test_nothing_heavy_is_imported_before_a_command_runs():
    heavy = ("rich", "numpy", "kubernetes", "fastapi", "yaml")
    code = f"import sys, extender.cli.commands; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"


def test_control_characters_do_not_reach_the_terminal():
    from extender.cli.output import plain

    assert plain("a\x1b[31mb\n") == "a[31mb"

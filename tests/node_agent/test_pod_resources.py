import socket

import pytest

from node_agent.claims import ClaimsKeeper
from node_agent.mps import MpsWatch
from node_agent.pod_resources import PodResourcesError, list_allocatable, list_given, plugin_resources
from tests.node_agent.kubelet import Kubelet, devices, field

LIST = field(
    1,
    field(1, "trainer")
    + field(2, "team")
    + field(3, field(1, "main") + field(2, devices("nvidia.com/gpu", "GPU-a::0")) + field(9, "later"))
    + field(3, field(1, "side")),
) + field(
    1,
    field(1, "disk") + field(2, "team") + field(3, field(1, "main") + field(2, devices("example.com/disk", "d0"))),
)
ALLOCATABLE = (
    field(1, devices("nvidia.com/gpu", "GPU-a::0", "GPU-a::1"))
    + field(1, devices("nvidia.com/gpu", "GPU-b::0", "GPU-b::1"))
    + field(1, devices("nvidia.com/mig-1g.5gb", "MIG-1"))
    + field(1, devices("example.com/disk", "d0"))
)
BODIES = {"List": LIST, "GetAllocatableResources": ALLOCATABLE}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kubelet.sock"


def test_what_was_given_is_read_with_pod_and_container(path):
    with Kubelet(path, BODIES) as kubelet:
        given = list_given(kubelet.path)
    assert [(each.namespace, each.pod, each.container, each.resource, each.device_ids) for each in given] == [
        ("team", "trainer", "main", "nvidia.com/gpu", ("GPU-a::0",)),
        ("team", "disk", "main", "example.com/disk", ("d0",)),
    ]


def test_resources_are_summed_over_replicas_and_others_left_out(path):
    with Kubelet(path, BODIES) as kubelet:
        found = plugin_resources(list_allocatable(kubelet.path), list_given(kubelet.path))
    assert [(each.resource, each.replicas, each.used, each.uuids) for each in found] == [
        ("nvidia.com/gpu", 4, 1, ("GPU-a", "GPU-b")),
        ("nvidia.com/mig-1g.5gb", 1, 0, ("MIG-1",)),
    ]


def test_large_reply_is_taken_under_flow_control(path):
    ids = [f"GPU-{number:032d}::{number}" for number in range(5000)]
    with Kubelet(path, {"GetAllocatableResources": field(1, devices("nvidia.com/gpu", *ids))}) as kubelet:
        assert len(list_allocatable(kubelet.path)["nvidia.com/gpu"]) == 5000


def test_reply_beyond_the_limit_is_refused(path, monkeypatch):
    monkeypatch.setattr("node_agent.pod_resources.MAX_REPLY_BYTES", 1000)
    body = {"List": b"".join(field(1, field(1, "p" * 100)) for _ in range(100))}
    with Kubelet(path, body) as kubelet, pytest.raises(PodResourcesError, match="larger"):
        list_given(kubelet.path)


def test_error_status_is_told(path):
    with Kubelet(path, BODIES, status="12") as kubelet, pytest.raises(PodResourcesError, match="status 12: told to"):
        list_given(kubelet.path)


@pytest.mark.parametrize("body", [b"\x0a\xff", b"\x0b", b"\x0a\x05ab", b"\xff" * 12])
def test_reply_that_is_no_message_is_refused(path, body):
    with Kubelet(path, {"List": body}) as kubelet, pytest.raises(PodResourcesError, match="reply"):
        list_given(kubelet.path)


def test_kubelet_that_is_absent_or_silent(path):
    with pytest.raises(PodResourcesError):
        list_given(str(path))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with pytest.raises(PodResourcesError, match="timed out"):
            list_given(str(path), timeout_s=0.2)


class TestClaimsKeeper:
    def test_plugin_devices_are_claimed_and_the_last_answer_stands_while_kubelet_is_away(self, path, tmp_path):
        keeper = ClaimsKeeper(str(path), MpsWatch(tmp_path, "no-such-binary", []))
        assert keeper.claims().plugin == ()
        with Kubelet(path, BODIES):
            keeper.ask()
        assert keeper.claims().plugin_uuids == {"GPU-a", "GPU-b", "MIG-1"}
        keeper.ask()
        assert keeper.claims().plugin_uuids == {"GPU-a", "GPU-b", "MIG-1"}
        path.unlink()
        keeper.ask()
        assert keeper.claims().plugin == ()

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.attribution import ProcAttributor, container_name_of, pod_uid_of

UID = "8f2b1c9e-4a77-4d1c-9e0f-2b6c5d4e3f21"
UNDERSCORED = UID.replace("-", "_")
CONTAINER = "3f4e5d6c" * 8

TREES = {
    "v2, systemd, containerd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/"
        f"cri-containerd-{CONTAINER}.scope\n"
    ),
    "v2, systemd, CRI-O": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/"
        f"crio-{CONTAINER}.scope/container\n"
    ),
    "v2, systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope\n",
    "v2, cgroupfs": f"0::/kubepods/burstable/pod{UID}/{CONTAINER}\n",
    "v2, seen from a private namespace": f"0::/../../kubepods/besteffort/pod{UID}/{CONTAINER}\n",
    "v2, systemd inside the container": (
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope/x\n"
    ),
    "v1, cgroupfs": (
        f"12:devices:/kubepods/burstable/pod{UID}/{CONTAINER}\n"
        f"11:memory:/kubepods/burstable/pod{UID}/{CONTAINER}\n"
        "1:name=systemd:/\n"
    ),
    "v1, systemd, containerd": (
        "13:rdma:/\n"
        f"12:pids:/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope\n"
        f"1:name=systemd:/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope\n"
    ),
    "v1, containerd's own nesting": (
        "9:cpuset:/system.slice/containerd.service/"
        f"kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{CONTAINER}\n"
    ),
    "a node that is itself a pod": (
        "0::/kubepods/besteffort/pod11111111-2222-3333-4444-555555555555/"
        f"{'a' * 64}/kubelet/kubepods/burstable/pod{UID}/{CONTAINER}\n"
    ),
    "a node that is a container": f"0::/docker/{'b' * 64}/kubelet-kubepods.slice/pod{UNDERSCORED}.slice\n",
}

STATIC_UID = "0123456789abcdef0123456789abcdef"

MOUNTS = (
    "2391 2354 0:188 / / rw,relatime - overlay overlay rw\n"
    f"2410 2391 8:1 /var/lib/kubelet/pods/{UID}/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"
    f"2411 2393 8:1 /var/lib/kubelet/pods/{UID}/containers/train-main/5c1f /dev/termination-log rw - ext4 /dev/sda1\n"
)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
def test_pod_is_found_in_every_recorded_tree(tree):
    assert pod_uid_of(tree) == UID


def test_static_pods_have_a_uid_without_dashes():
    assert pod_uid_of(f"0::/kubepods/burstable/pod{STATIC_UID}/{CONTAINER}\n") == STATIC_UID


@pytest.mark.parametrize(
    "tree",
    [
        "",
        "0::/\n",
        "0::/system.slice/ssh.service\n",
        f"0::/docker/{CONTAINER}\n",
        "0::/machine.slice/libpod-abc.scope\n",
    ],
)
def test_processes_outside_pods_have_none(tree):
    assert pod_uid_of(tree) is None


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text):
    assert pod_uid_of(text) is None or "pod" in text


def test_container_name_is_in_the_termination_log_mount():
    assert container_name_of(MOUNTS, UID) == "train-main"


def test_mounts_of_another_pod_are_not_taken_for_ours():
    assert container_name_of(MOUNTS, STATIC_UID) == ""


class TestProc:
    @staticmethod
    def process(root, pid, cgroup, comm="python3", started=100, mounts=MOUNTS):
        place = root / str(pid)
        place.mkdir(exist_ok=True)
        (place / "cgroup").write_text(cgroup)
        (place / "comm").write_text(comm + "\n")
        (place / "mountinfo").write_text(mounts)
        (place / "stat").write_text(f"{pid} (a ) b (c) S " + " ".join(["0"] * 18) + f" {started} 0 0\n")

    def test_owner_of_a_process(self, tmp_path):
        self.process(tmp_path, 7, TREES["v2, cgroupfs"])
        tenant = ProcAttributor(tmp_path).tenant(7)
        assert (tenant.pod_uid, tenant.container, tenant.is_mps_server) == (UID, "train-main", False)

    def test_process_that_is_gone_is_nobodys(self, tmp_path):
        assert ProcAttributor(tmp_path).tenant(7) is None

    def test_pid_that_is_used_again_is_looked_at_anew(self, tmp_path):
        attributor = ProcAttributor(tmp_path)
        self.process(tmp_path, 7, TREES["v2, cgroupfs"])
        assert attributor.tenant(7).pod_uid == UID
        self.process(tmp_path, 7, "0::/system.slice/x.service\n", started=200)
        assert attributor.tenant(7) is None

    def test_mps_server_is_told_apart(self, tmp_path):
        self.process(tmp_path, 7, "0::/\n", comm="nvidia-cuda-mps")
        assert ProcAttributor(tmp_path).tenant(7).is_mps_server

    def test_memory_of_answers_is_bounded(self, tmp_path, monkeypatch):
        monkeypatch.setattr("node_agent.attribution.MAX_REMEMBERED", 10)
        attributor = ProcAttributor(tmp_path)
        for pid in range(1, 40):
            self.process(tmp_path, pid, TREES["v2, cgroupfs"])
            attributor.tenant(pid)
        assert len(attributor._known) <= 10

    def test_this_very_process_can_be_read(self):
        import os

        ProcAttributor().tenant(os.getpid())

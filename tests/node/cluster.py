"""A cluster of one real node: control plane, kubelet, containerd, NVIDIA's runtime, DNS.

Everything runs in one `Machine`; the test run reaches the API server through a `Doorway`. The kube-scheduler is the
stock one, for pods without GPU; the product brings its own, in a pod. Services are reached by name, at their pods'
addresses; kube-proxy is left out, since the API server calls webhooks at their pods too, and its own address is one of
the node's.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
import yaml

from tests.controlplane.access import (
    ADMIN,
    CONTROLLER_MANAGER,
    SCHEDULER,
    Endpoint,
    User,
    write_credentials,
    write_kubeconfig,
)
from tests.controlplane.api import Api, ApiError, Json
from tests.controlplane.build import Binaries
from tests.controlplane.scheduler import plain_configuration
from tests.node.doorway import Doorway
from tests.node.machine import ADDRESS, SERVICE_ADDRESS, InnerProcess, Machine
from tests.node.packages import Packages
from tests.node.programs import program
from tests.node.runtime import SOCKET, write_containerd, write_nvidia_runtime

NODE = "node-a"
KUBELET = User(f"system:node:{NODE}", "kubelet-token", ("system:nodes",))
DNS = User("dns", "dns-token", ("system:masters",))
_API_PORT = 443
_ISSUER = "https://kubernetes.default.svc.cluster.local"
_READY_S = 60.0


@dataclass
class Programs:
    """The processes of a node, each of which a test may kill and start again."""

    etcd: InnerProcess
    api_server: InnerProcess
    controller_manager: InnerProcess
    containerd: InnerProcess
    kubelet: InnerProcess
    dns: InnerProcess
    scheduler: InnerProcess


class NodeCluster:
    """The cluster; `start` returns when the node is ready. After `power_cut` it can be started again on its data."""

    def __init__(self, directory: Path, binaries: Binaries, packages: Packages) -> None:
        self.directory = directory
        self._binaries = binaries
        self._packages = packages
        names = (ADDRESS, SERVICE_ADDRESS, "kubernetes.default.svc")
        users = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, KUBELET, DNS)
        directory.mkdir(parents=True, exist_ok=True)
        self._credentials = write_credentials(directory, users, names)
        inner = f"https://{ADDRESS}:{_API_PORT}"
        self._kubeconfigs = {
            user.name: write_kubeconfig(
                directory / f"{user.token}.kubeconfig", Endpoint(inner, user.token, self._credentials.authority)
            )
            for user in users
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything, and wait until the node is ready; 10 s on an idle machine of two cores."""
        self.machine = Machine(NODE, self.directory, self._packages)
        self.machine.start()
        self.doorway = Doorway(self.machine.first_pid)
        self.url = f"https://127.0.0.1:{self.doorway.to(ADDRESS, _API_PORT)}"
        self.api = Api(Endpoint(self.url, ADMIN.token, self._credentials.authority))
        self.programs = self._programs()
        for process in (self.programs.containerd, self.programs.etcd, self.programs.api_server):
            process.start()
        self.programs.api_server.wait_until(self._api_is_ready, within_s=_READY_S)
        for process in (self.programs.controller_manager, self.programs.dns, self.programs.scheduler):
            process.start()
        self.programs.containerd.wait_until(self.containerd_answers, within_s=_READY_S)
        self._start_kubelet()
        self.programs.controller_manager.wait_until(self._accounts_exist, within_s=_READY_S)

    def stop(self) -> None:
        """End everything."""
        if hasattr(self, "api"):
            self.api.close()
        if hasattr(self, "doorway"):
            self.doorway.close()
        if hasattr(self, "machine"):
            self.machine.stop()

    @property
    def admin_kubeconfig(self) -> Path:
        """A kubeconfig that works inside the machine."""
        return self._kubeconfigs[ADMIN.name]

    def endpoint(self, token: str) -> Endpoint:
        """Return how to reach the API server from the test run with a bearer token."""
        return Endpoint(self.url, token, self._credentials.authority)

    def import_image(self, archive: Path) -> None:
        """Give the node an image, from its archive."""
        done = self.machine.run("ctr", "-n", "k8s.io", "images", "import", "--no-unpack", str(archive), within_s=300.0)
        if done.code:
            message = f"image {archive.name} was not imported: {done.output}"
            raise RuntimeError(message)

    def node(self) -> Json:
        """Return the Node."""
        return self.api.get(f"/api/v1/nodes/{NODE}")

    def node_is_ready(self) -> bool:
        """Tell whether the Node is ready, and was heard of since kubelet's last start."""
        try:
            conditions = self.node()["status"].get("conditions", [])
        except (ApiError, httpx2.TransportError):
            return False
        ready = [each for each in conditions if each["type"] == "Ready" and each["status"] == "True"]
        return any(datetime.fromisoformat(each["lastHeartbeatTime"]) > self._kubelet_started for each in ready)

    def restart_kubelet(self) -> None:
        """Kill kubelet as a crash would, start it again and wait until the node is ready."""
        self.programs.kubelet.kill()
        self._start_kubelet()

    def _start_kubelet(self) -> None:
        self._kubelet_started = datetime.now(UTC).replace(microsecond=0)
        self.programs.kubelet.start()
        self.programs.kubelet.wait_until(self.node_is_ready, within_s=_READY_S)

    def power_cut(self) -> None:
        """End everything at once, and start it again on what was written, as a node that reboots."""
        self.stop()
        self.start()

    def pids(self, container_id: str) -> list[int]:
        """Return the processes of a container, as the node counts them; `container_id` as in the pod's status."""
        short = container_id.rpartition("/")[2]
        script = f"grep -l {short} /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3"
        return [int(each) for each in self.machine.run("sh", "-c", script).output.split()]

    def kill_container(self, container_id: str) -> None:
        """Kill the processes of a container, as a crash would."""
        for pid in self.pids(container_id):
            self.machine.run("kill", "-9", str(pid))

    def _programs(self) -> Programs:
        make = self.machine.process
        runtime = write_nvidia_runtime(self.directory, self._packages)
        return Programs(
            etcd=make("etcd", self._etcd()),
            api_server=make("kube-apiserver", self._api_server()),
            controller_manager=make("kube-controller-manager", self._controller_manager()),
            containerd=make(
                "containerd", ["containerd", "-c", str(write_containerd(self.directory, self._packages))], runtime
            ),
            kubelet=make("kubelet", self._kubelet()),
            dns=make("coredns", self._dns()),
            scheduler=make("kube-scheduler", self._scheduler()),
        )

    def _etcd(self) -> list[str]:
        client = "http://127.0.0.1:2379"
        return [
            str(self._binaries.path("etcd")),
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _api_server(self) -> list[str]:
        files = self._credentials
        return [
            str(self._binaries.path("kube-apiserver")),
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}",
            f"--secure-port={_API_PORT}",
            f"--tls-cert-file={files.certificate}",
            f"--tls-private-key-file={files.key}",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={files.service_account_key}",
            f"--service-account-signing-key-file={files.service_account_key}",
            f"--token-auth-file={files.tokens}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-aggregator-routing=true",  # webhooks are called at their pods' addresses
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
        ]

    def _controller_manager(self) -> list[str]:
        return [
            str(self._binaries.path("kube-controller-manager")),
            f"--kubeconfig={self._kubeconfigs[CONTROLLER_MANAGER.name]}",
            f"--root-ca-file={self._credentials.authority}",
            f"--service-account-private-key-file={self._credentials.service_account_key}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
        ]

    def _kubelet(self) -> list[str]:
        path = self.directory / "kubelet.yaml"
        path.write_text(yaml.safe_dump(_kubelet_configuration(self.machine.cgroup)), encoding="utf-8")
        return [
            str(program("kubelet")),
            f"--config={path}",
            f"--kubeconfig={self._kubeconfigs[KUBELET.name]}",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
            "--root-dir=/var/lib/kubelet",
            "--v=2",
        ]

    def _scheduler(self) -> list[str]:
        path = self.directory / "scheduler.yaml"
        connection = {"clientConnection": {"kubeconfig": str(self._kubeconfigs[SCHEDULER.name])}}
        path.write_text(yaml.safe_dump(plain_configuration() | connection), encoding="utf-8")
        return [str(self._binaries.path("kube-scheduler")), f"--config={path}", "--secure-port=0"]

    def _dns(self) -> list[str]:
        path = self.directory / "Corefile"
        plugin = f"kubernetes cluster.local {{\n    kubeconfig {self._kubeconfigs[DNS.name]}\n    ttl 1\n  }}"
        path.write_text(f".:53 {{\n  errors\n  {plugin}\n}}\n", encoding="utf-8")
        return [str(program("coredns")), "-conf", str(path)]

    def _api_is_ready(self) -> bool:
        self.programs.etcd.check()
        try:
            return self.api.is_ready() and self.api.exists("/api/v1/namespaces/default")
        except httpx2.TransportError:
            return False

    def _accounts_exist(self) -> bool:
        return self.api.exists("/api/v1/namespaces/default/serviceaccounts/default")

    def containerd_answers(self) -> bool:
        """Tell whether containerd serves."""
        return self.machine.run("ctr", "--connect-timeout", "2s", "version").code == 0


def _kubelet_configuration(cgroup: str) -> Json:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "failSwapOn": False,
        "maxPods": 160,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "1Mi",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1Mi",
        },
        "nodeStatusUpdateFrequency": "4s",
        "volumePluginDir": "/var/lib/kubelet/plugins-volume",
    }

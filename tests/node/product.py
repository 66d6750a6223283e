"""The product on the node, as it ships: its images, its chart with the default values, its agent on a stand-in driver.

What differs from a real cluster is said here and nowhere else: the driver is a stub, its devices are described by CDI
as files, and MPS' control program is a stand-in.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.controlplane.access import ADMIN, write_kubeconfig
from tests.controlplane.api import Api, ApiError, Json, trust, wait_for
from tests.controlplane.build import Binaries
from tests.node.cluster import NodeCluster
from tests.node.images import busybox_image, pause_image, product_image, program_image
from tests.node.packages import Packages
from tests.node.runtime import PAUSE_IMAGE, StubDriver, write_devices
from tests.nvml.driver import SONAME, Driver, compile_stub, compiler

CHART = Path(__file__).parents[2] / "manifests" / "chart"
SYSTEM, AGENTS = "tangram-system", "tangram-agents"
BUSYBOX, GREEDY = "tangram.test/busybox:1", "tangram.test/cuda-like:1"
GPU, OTHER_GPU, MPS_GPU, MIG_GPU, FAULTY_GPU = (f"GPU-{index:08d}-0000-0000-0000-000000000000" for index in range(5))
MIG_DEVICES = tuple(f"MIG-{3:08d}-0000-0000-0000-{slot:012d}" for slot in range(2))
DEVICES = (GPU, OTHER_GPU, MPS_GPU, *MIG_DEVICES, FAULTY_GPU)
MPS_ROOT = "/run/tangram/mps"
_INSTALL_S = 180.0
_SEEN_S = 0.5  # until the API server has seen that webhooks have come or gone; it does not say when
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_KINDS_OF_WEBHOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_PEOPLE_PORT, _METRICS_PORT = 8273, 9464


@dataclass
class Product:
    """The installed product, in reach of a test."""

    cluster: NodeCluster
    binaries: Binaries
    driver: Driver
    stub: StubDriver
    control: Path

    @property
    def api(self) -> Api:
        """The API server, as the administrator."""
        return self.cluster.api

    def helm(self, *arguments: str) -> str:
        """Run helm inside the machine. Raises RuntimeError with its words."""
        return self._administer("helm", *arguments)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl inside the machine. Raises RuntimeError with its words."""
        return self._administer("kubectl", *arguments, text=text)

    def tangram(self, *arguments: str) -> str:
        """Run the product's command line as a person outside would. Raises RuntimeError with its words."""
        program = str(Path(sys.executable).with_name("tangram"))
        command = [program, "--kubeconfig", str(self.outer_kubeconfig()), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            message = f"tangram {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}"
            raise RuntimeError(message)
        return done.stdout

    def outer_kubeconfig(self) -> Path:
        """Return a kubeconfig of the administrator that works outside the machine."""
        return write_kubeconfig(self.cluster.directory / "outer.kubeconfig", self.cluster.endpoint(ADMIN.token))

    def logs(self, namespace: str, pod: str, container: str) -> str:
        """Return what a container wrote, empty while it has not been started."""
        endpoint = self.cluster.endpoint(ADMIN.token)
        answer = httpx2.get(
            f"{endpoint.url}/api/v1/namespaces/{namespace}/pods/{pod}/log",
            params={"container": container},
            headers={"Authorization": f"Bearer {endpoint.token}"},
            verify=trust(endpoint),
            timeout=10.0,
            trust_env=False,
        )
        return answer.text if answer.is_success else ""

    @contextmanager
    def devices(self, uuids: Sequence[str]) -> Iterator[None]:
        """Let the container runtime know these devices only, for a while."""
        write_devices(self.cluster.directory, uuids, self.stub, self.control)
        try:
            yield
        finally:
            write_devices(self.cluster.directory, DEVICES, self.stub, self.control)

    @contextmanager
    def no_webhooks(self) -> Iterator[None]:
        """Take the webhooks away for a while, as if somebody had deleted them; the policies stay."""
        kept = {kind: self.api.get(f"{_WEBHOOKS}/{kind}/tangram") for kind in _KINDS_OF_WEBHOOKS}
        for kind in kept:
            self.api.delete(f"{_WEBHOOKS}/{kind}/tangram")
        time.sleep(_SEEN_S)
        try:
            yield
        finally:
            for kind, found in kept.items():
                del found["metadata"]["resourceVersion"], found["metadata"]["uid"]
                self.api.create(f"{_WEBHOOKS}/{kind}", found)
            time.sleep(_SEEN_S)

    def extenders(self) -> list[Json]:
        """Return the pods of the pair that are not going away."""
        return self._pods(SYSTEM, "extender")

    def agents(self) -> list[Json]:
        """Return the agents' pods that are not going away: one, or none."""
        return self._pods(AGENTS, "agent")

    def agent(self) -> Json:
        """Return the agent's pod."""
        (pod,) = self.agents()
        return pod

    def agent_metrics(self, name: str) -> list[Sample]:
        """Return the samples of one metric that the agent exports, none while it does not answer."""
        port = self.cluster.doorway.to(self.agent()["status"]["podIP"], _METRICS_PORT)
        try:
            text = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=10.0, trust_env=False).text
        except httpx2.TransportError:
            return []
        families = text_string_to_metric_families(text)
        return [sample for family in families for sample in family.samples if sample.name == name]

    def lease_holder(self) -> str:
        """Return the name of the pod whose kube-scheduler holds the lease, empty for none."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/tangram-scheduler"
        try:
            return str(self.api.get(path)["spec"].get("holderIdentity") or "").rpartition("_")[0]
        except ApiError:
            return ""

    def ask(self, pod: Json, path: str) -> Json:
        """Return what a replica answers on its listener for people, to a viewer."""
        answer = self.get(pod, path)
        answer.raise_for_status()
        found: Json = answer.json()
        return found

    def get(self, pod: Json, path: str) -> httpx2.Response:
        """Return a replica's answer on its listener for people; its certificate is looked at by other tests."""
        port = self.cluster.doorway.to(pod["status"]["podIP"], _PEOPLE_PORT)
        headers = {"Authorization": f"Bearer {self.viewer_token()}"}
        return httpx2.get(
            f"https://127.0.0.1:{port}{path}", verify=False, headers=headers, timeout=10.0, trust_env=False
        )

    def viewer_token(self) -> str:
        """Return a token of the account that may see pod names."""
        path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/tangram-viewer/token"
        spec = {"audiences": ["tangram"], "expirationSeconds": 600}
        return str(self.api.create(path, {"spec": spec})["status"]["token"])

    def fleet(self) -> Json:
        """Return the fleet as the acting replica tells it, or the other one while that does not answer."""
        holder = self.lease_holder()
        replicas = sorted(self.extenders(), key=lambda each: each["metadata"]["name"] != holder)
        for replica in replicas[:-1]:
            with suppress(httpx2.HTTPError):
                return self.ask(replica, "/v1/fleet")
        return self.ask(replicas[-1], "/v1/fleet")

    def health(self, uuid: str) -> str:
        """Return the health of a device, as the extender knows it."""
        devices = [each for node in self.fleet()["nodes"] for each in node["devices"]]
        return next(str(each["health"]) for each in devices if each["uuid"] == uuid)

    def wait_ready(self, *, within_s: float = _INSTALL_S) -> None:
        """Wait until a replica acts, the agent runs and the node's totals are advertised."""
        try:
            wait_for("the product is ready", self._is_ready, within_s=within_s)
        except TimeoutError as late:
            raise TimeoutError(f"{late}\n{self.describe()}") from late

    def describe(self) -> str:
        """Return what somebody would ask first when it does not work."""
        told = [self.kubectl("get", "pods", "-A", "-o", "wide"), self.kubectl("get", "events", "-A")]
        for pod in (*self._pods(SYSTEM, "extender"), *self._pods(AGENTS, "agent")):
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            try:
                told.append(self.kubectl("-n", namespace, "logs", name, "--all-containers", "--tail=30"))
            except RuntimeError as problem:
                told.append(str(problem))
        return "\n".join(told)

    def _is_ready(self) -> bool:
        if not self.lease_holder() or not self.agents() or not self.extenders():
            return False
        totals = self.cluster.node()["status"]["allocatable"]
        return "tangram.dev/gpu-memory" in totals and all(_is_ready(each) for each in (self.agent(), *self.extenders()))

    def _pods(self, namespace: str, component: str) -> list[Json]:
        query = {"labelSelector": f"app.kubernetes.io/component={component}"}
        found = self.api.items(f"/api/v1/namespaces/{namespace}/pods", **query)
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def _administer(self, program: str, *arguments: str, text: str | None = None) -> str:
        command = (str(self.binaries.path(program)), "--kubeconfig", str(self.cluster.admin_kubeconfig), *arguments)
        done = self.cluster.machine.run(*command, text=text, within_s=_INSTALL_S)
        if done.code:
            message = f"{program} {' '.join(arguments[:3])} ended with {done.code}: {done.output}"
            raise RuntimeError(message)
        return done.output


def write_archives(folder: Path, packages: Packages, binaries: Binaries) -> list[Path]:
    """Write every image that the node needs, the product's under the names that the chart uses by default."""
    folder.mkdir(parents=True, exist_ok=True)
    version = str(yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"])
    busybox = packages.program("busybox")
    scheduler = f"registry.k8s.io/kube-scheduler:v{binaries.kubernetes_version}"
    return [
        pause_image(busybox, PAUSE_IMAGE, folder),
        busybox_image(busybox, BUSYBOX, folder),
        busybox_image(busybox, GREEDY, folder, visible="all"),
        program_image(binaries.path("kube-scheduler"), scheduler, folder),
        *(product_image(each, f"ghcr.io/tangram-gpu/{each}:{version}", folder) for each in ("extender", "agent")),
    ]


def stub_driver(directory: Path) -> tuple[Driver, StubDriver]:
    """Compile the stand-in driver, and describe a node of four plain devices and one cut into two MIG instances."""
    library = compile_stub(directory / "driver") / SONAME
    scenario = directory / "nvml" / "scenario.txt"
    scenario.parent.mkdir(exist_ok=True)
    driver = Driver(library.parent, scenario)
    driver.set(count=5)
    driver.device(3, {"mig": 1, "mig.0": "1g.10gb:9728:14:1:0", "mig.1": "1g.10gb:9728:14:2:1"})
    return driver, StubDriver(library, scenario)


def mps_control(directory: Path) -> Path:
    """Compile the stand-in for MPS' control program, which needs nothing of the container that it is mounted into."""
    target, found = directory / "driver" / "nvidia-cuda-mps-control", compiler()
    source = Path(__file__).with_name("mps_control.c")
    assert found is not None
    subprocess.run([found, "-O1", "-Wall", "-Werror", "-static", "-o", str(target), str(source)], check=True)
    return target


def install(cluster: NodeCluster, binaries: Binaries, archives: Sequence[Path], values: Mapping[str, str]) -> Product:
    """Give the node its images and devices, and install the chart with a few values."""
    driver, stub = stub_driver(cluster.directory)
    control = mps_control(cluster.directory)
    write_devices(cluster.directory, DEVICES, stub, control)
    for archive in archives:
        cluster.import_image(archive)
    product = Product(cluster, binaries, driver, stub, control)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    product.api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM, "labels": labels}})
    chart = cluster.directory / "chart"
    shutil.copytree(CHART, chart, dirs_exist_ok=True)  # others may be editing it
    settings = [f"--set={name}={value}" for name, value in values.items()]
    product.helm("install", "tangram", str(chart), "-n", SYSTEM, *settings)
    return product


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

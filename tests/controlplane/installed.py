"""The chart, installed by helm on a real control plane, and its programs run with its own configuration and accounts.

A pair is two processes with a host name of their own, as the containers of one pod have it; so they need the right to
make one (root). Addresses and the folder of a volume differ from what the chart says: everything is on loopback.
"""

import base64
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import yaml

from extender.certificates import Audience, read_authorities
from extender.scheduler_client import client_secret
from extender.scheduler_config import scheduler_configuration, stand_alone_tls
from node_agent.simulated_builders import node_description
from tests.controlplane.access import Endpoint
from tests.controlplane.api import Json, PatchKind, wait_for
from tests.controlplane.build import ensure
from tests.controlplane.forged import expired
from tests.controlplane.hollow import HollowNodes
from tests.controlplane.kubelet import HollowNode
from tests.controlplane.loopback import free_ports
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Process
from tests.controlplane.scheduler import plain_configuration

CHART = Path(__file__).parents[2] / "manifests" / "chart"
SYSTEM, AGENTS = "tangram-system", "tangram-agents"
NODES = ("gpu-a", "gpu-b")
LOOPBACK = "127.0.0.1"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_START_S = 90.0  # importing takes long where all cores are busy
_CONFIGURATION = f"/api/v1/namespaces/{SYSTEM}/configmaps/tangram-extender"
_AUTHORITIES = f"/api/v1/namespaces/{SYSTEM}/secrets/tangram-authorities"
_HEADLESS = ("tangram-reports", "tangram-peers")
_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def may_name_hosts() -> bool:
    """Tell whether a process with a host name of its own can be made here."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    command = [unshare, "-u", "hostname", "tangram-probe"]
    return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0


@dataclass(frozen=True)
class Pair:
    """One replica in the paired mode."""

    name: str
    extender: Process
    scheduler: Process
    ports: dict[Audience, int]
    address: str = LOOPBACK

    def ask(self, path: str, port: int | None = None, *, within_s: float = 3.0, token: str = "") -> httpx2.Response:
        """Return the answer to a GET on the people's listener; its certificate is not what is looked at here."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://{self.address}:{port or self.ports[Audience.PEOPLE]}{path}"
        return httpx2.get(url, headers=headers, timeout=within_s, trust_env=False, verify=context)

    def is_ready(self, *, within_s: float = 3.0) -> bool:
        """Tell whether the probe of both containers succeeds; one that fails returns False."""
        deadline = time.monotonic() + within_s
        try:
            return self.ask("/readyz", within_s=within_s).status_code == httpx2.codes.OK
        except httpx2.TransportError:
            time.sleep(max(0.0, min(0.2, deadline - time.monotonic())))
            return False


class Installed:
    """A release of the chart and what runs of it."""

    def __init__(self, plane: ControlPlane, stack: ExitStack) -> None:
        self.plane = plane
        self._stack = stack
        self.kubeconfig = plane.kubeconfig(plane.directory / "admin.kubeconfig")
        self.account = plane.service_account(SYSTEM, "tangram-extender")
        self._account = plane.kubeconfig(plane.directory / "account.kubeconfig", self.account)
        self._hosts: Path | None = None
        self._shared_ports: dict[Audience, int] = {}

    def lead_names_to(self, *addresses: str) -> None:
        """Have the chart's headless Services lead to these addresses wherever pairs and agents are started after this.

        Pairs then serve one port each at an address of their own, as pods do.
        """
        names = " ".join(f"{service}.{SYSTEM}.svc" for service in _HEADLESS)
        self._hosts = self.plane.directory / "hosts"
        self._hosts.write_text("".join(f"{address} {names}\n" for address in addresses) + f"{LOOPBACK} localhost\n")
        self._shared_ports = _free_ports_by_audience()

    def start_pair(self, name: str, way: Endpoint | None = None, address: str = LOOPBACK) -> Pair:
        """Start extender and kube-scheduler as one pod would: the scheduler when the extender is ready.

        With a ``way``, such as a fault proxy's, the extender reaches the API server by it.
        """
        directory, ports = self._prepare(name)
        files = self.plane.api.get(_CONFIGURATION)["data"]
        configuration = directory / "scheduler.yaml"
        configuration.write_text(yaml.safe_dump(self._scheduler_configuration(files["scheduler.yaml"], ports)))
        command = [str(ensure("kube-scheduler")), f"--config={configuration}", "--secure-port=0", "--v=2"]
        scheduler = self._process(name, "kube-scheduler", command, {})
        pair = Pair(name, self._extender(directory, ports, way, address), scheduler, ports, address)
        pair.extender.start()
        pair.extender.wait_until(pair.is_ready, within_s=_START_S)
        scheduler.start()
        return pair

    def start_stand_alone(self, name: str) -> Pair:
        """Start an extender alone, and an existing kube-scheduler that calls it with the certificate made for it."""
        directory, ports = self._prepare(name)
        tls = stand_alone_tls(str(directory), f"tangram-scheduler.{SYSTEM}.svc")
        url = f"https://127.0.0.1:{ports[Audience.SCHEDULER]}"
        configuration = scheduler_configuration(url, tls=tls, election={"leaderElect": False})
        extender = self._extender(directory, ports)
        extender.start()
        wait_for("the authorities are made", lambda: self.plane.api.exists(_AUTHORITIES), within_s=_START_S)
        self._write_client(directory)
        pair = Pair(name, extender, self.plane.start_scheduler(configuration, name), ports)
        extender.wait_until(pair.is_ready, within_s=_START_S)
        return pair

    def _prepare(self, name: str) -> tuple[Path, dict[Audience, int]]:
        directory = self.plane.directory / name
        directory.mkdir()
        own = _free_ports_by_audience()
        return directory, own | self._shared_ports | {Audience.SCHEDULER: own[Audience.SCHEDULER]}

    def _extender(
        self, directory: Path, ports: dict[Audience, int], way: Endpoint | None = None, address: str = LOOPBACK
    ) -> Process:
        """Return the extender with the chart's own settings but for its addresses, not started yet."""
        text = self.plane.api.get(_CONFIGURATION)["data"]["extender.yaml"]
        settings, content = directory / "extender.yaml", self._extender_settings(text, ports, directory, address)
        if way is not None:
            content["kubeconfig"] = str(self.plane.kubeconfig(directory / "way.kubeconfig", way))
        settings.write_text(yaml.safe_dump(content))
        environment = {"TANGRAM_CONFIG": str(settings)}
        return self._process(directory.name, "extender", [sys.executable, "-m", "extender"], environment)

    def _write_client(self, directory: Path) -> None:
        secret = self.plane.api.get(_AUTHORITIES)["data"]
        entries = {key: base64.b64decode(value) for key, value in secret.items()}
        made = client_secret(read_authorities(entries, "test"), datetime.now(UTC), timedelta(days=1))["data"]
        assert isinstance(made, dict)
        for file, content in made.items():
            (directory / file).write_bytes(base64.b64decode(content))

    def lead_webhooks_to(self, pair: Pair) -> None:
        """Replace the webhooks' Service, which leads nowhere here, by an address; trust is the extender's to write."""
        for kind in _KINDS:
            path = f"{_WEBHOOKS}/{kind}/tangram"
            found = self.plane.api.get(path)
            for webhook in found["webhooks"]:
                client = webhook["clientConfig"]
                way = client["service"]["path"] if "service" in client else "/" + client["url"].split("/", 3)[3]
                trust = {"caBundle": client["caBundle"]} if "caBundle" in client else {}
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{pair.ports[Audience.WEBHOOKS]}{way}", **trust}
            self.plane.api.replace(path, found)
        wait_for("the webhooks are trusted", lambda: all(self._trusted(kind) for kind in _KINDS))

    def agent_pod(self, node: str) -> str:
        """Return the name of the DaemonSet's pod on a node, made by kube-controller-manager."""

        def probe() -> str | None:
            pods = self.plane.api.items(f"/api/v1/namespaces/{AGENTS}/pods")
            names = [each["metadata"]["name"] for each in pods if each["spec"].get("nodeName") == node]
            return names[0] if names else None

        return wait_for(f"an agent's pod on {node}", probe, within_s=60)

    def start_agent(self, node: str, *pairs: Pair) -> Process:
        """Start the agent's program for a node, with the token that kubelet would project into its pod."""
        directory = self.plane.directory / f"agent-{node}"
        directory.mkdir(exist_ok=True)
        token, trust = directory / "token", directory / "ca.crt"
        token.write_text(self.plane.token(AGENTS, "tangram-agent", audience="tangram", pod=self.agent_pod(node)))
        trust.write_text(self.trust())
        description = directory / "description.json"
        description.write_bytes(msgspec.json.encode(node_description(node, "A100-40GB", 2)))
        urls = ",".join(sorted({f"https://{self._reports_name()}:{pair.ports[Audience.AGENTS]}" for pair in pairs}))
        settings = {"node": node, "urls": urls, "token_file": token, "ca_file": trust, "metrics_port": 0}
        settings |= {"simulate": description, "heartbeat_s": 1, "sweep_s": 0.5}
        environment = {f"TANGRAM_AGENT_{name.upper()}": str(value) for name, value in settings.items()}
        agent = self._process("agent", node, [sys.executable, "-m", "node_agent"], environment, named=False)
        agent.start()
        return agent

    def trust(self) -> str:
        """Return whom agents have to trust, as the extender published it."""
        path = f"/api/v1/namespaces/{AGENTS}/configmaps/tangram-trust"
        return wait_for("trust is published", lambda: self.plane.api.get(path).get("data", {}).get("ca.crt"))

    def viewer_token(self) -> str:
        """Return a token that opens pod names, as a TokenRequest makes it."""
        return self.plane.token(SYSTEM, "tangram-viewer", audience="tangram")

    def expired_token(self, token: str) -> str:
        """Return the token as the API server would have signed it a day ago, with its own key."""
        return expired(token, self.plane.credentials.service_account_key)

    def lease_holder(self) -> str:
        """Return which pair's kube-scheduler holds the lease, empty for none."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/tangram-scheduler"
        if not self.plane.api.exists(path):
            return ""
        return str(self.plane.api.get(path)["spec"].get("holderIdentity") or "").rpartition("_")[0]

    def _reports_name(self) -> str:
        return "localhost" if self._hosts is None else f"tangram-reports.{SYSTEM}.svc"

    def _extender_settings(self, text: str, ports: dict[Audience, int], directory: Path, address: str) -> Json:
        settings: Json = yaml.safe_load(text)
        settings["deployment"] |= {f"{audience}_port": port for audience, port in ports.items()}
        settings["deployment"] |= {"host": address, "certificates_directory": str(directory / "certificates")}
        if "history" in settings:
            peers, history = settings["history"]["peers"].rpartition(":")[0], settings["history"]
            history |= {"path": str(directory / "history.db"), "peers": f"{peers}:{ports[Audience.PEOPLE]}"}
            history |= {"peers_ca": str(directory / "certificates" / history["peers_ca"].split("/certificates/")[1])}
        return settings | {"kubeconfig": str(self._account), "reports_wait_s": 5, "heartbeat_s": 1}

    def _scheduler_configuration(self, text: str, ports: dict[Audience, int]) -> Json:
        configuration: Json = yaml.safe_load(text)
        configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{ports[Audience.SCHEDULER]}/v1"
        return configuration | {"clientConnection": {"kubeconfig": str(self._account)}}

    def _process(
        self, pod: str, name: str, command: list[str], environment: dict[str, str], *, named: bool = True
    ) -> Process:
        hosts = [] if self._hosts is None else [f"mount --bind {self._hosts} /etc/hosts"]
        script = " && ".join([*hosts, *([f"hostname {pod}"] if named else []), "exec " + " ".join(command)])
        flags = ["-u"] * named + ["-m"] * bool(hosts)
        whole = ["unshare", *flags, "sh", "-c", script] if flags else command
        process = Process(f"{pod} {name}", whole, self.plane.directory / f"{pod}-{name}.log", environment)
        self._stack.callback(process.stop)
        return process

    def _trusted(self, kind: str) -> bool:
        found = self.plane.api.get(f"{_WEBHOOKS}/{kind}/tangram")
        return all(each["clientConfig"].get("caBundle") for each in found["webhooks"])


def helm(plane: ControlPlane, *arguments: str) -> str:
    """Run helm as the cluster's administrator and return its output; RuntimeError with what it said."""
    environment = {**os.environ, "KUBECONFIG": str(plane.directory / "admin.kubeconfig")}
    command = [str(ensure("helm")), *arguments, "-n", SYSTEM]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    if answer.returncode:
        raise RuntimeError(f"helm {' '.join(arguments)}: {answer.stderr[-3000:]}")
    return answer.stdout


@contextmanager
def install(plane: ControlPlane, *values: str) -> Iterator[Installed]:
    """Install the chart on a control plane with kube-controller-manager, and two hollow nodes beside it."""
    sets = [argument for value in ("runtimeClass.create=true", *values) for argument in ("--set", value)]
    plane.kubeconfig(plane.directory / "admin.kubeconfig")
    with ExitStack() as stack:
        hollow = [HollowNode(node) for node in NODES]
        stack.enter_context(HollowNodes(plane.endpoint(), hollow, status_period_s=0.3))
        helm(plane, "install", "tangram", str(CHART), "--create-namespace", *sets)
        plane.start_scheduler(plain_configuration())
        yield Installed(plane, stack)


def _free_ports_by_audience() -> dict[Audience, int]:
    return dict(zip(Audience, free_ports(len(Audience)), strict=True))


def label_restricted(plane: ControlPlane) -> None:
    """Do what the chart's notes tell the operator: the extender's namespace takes restricted pods only."""
    labels: dict[str, Any] = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    plane.api.patch(f"/api/v1/namespaces/{SYSTEM}", labels, PatchKind.MERGE)

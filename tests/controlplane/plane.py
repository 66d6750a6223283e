"""A real control plane on loopback: etcd, kube-apiserver, kube-scheduler and, when asked for, kube-controller-manager.

    with ControlPlane(binaries(), directory) as plane:
        plane.start_scheduler(scheduler_configuration(extender_url))
        plane.api.create("/api/v1/namespaces/default/pods", manifest)

Every process is a `Process`: it can be stopped, killed, frozen and restarted by a test, and none outlives the test run,
however that ends. Logs stay in `directory`, and the tail of the right one is in the error when something dies.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
import yaml

from tests.controlplane.access import (
    ADMIN,
    BUILT_IN_USERS,
    CONTROLLER_MANAGER,
    SCHEDULER,
    Credentials,
    Endpoint,
    User,
    write_credentials,
    write_kubeconfig,
)
from tests.controlplane.api import Api, Json, PatchKind
from tests.controlplane.build import Binaries
from tests.controlplane.loopback import free_ports
from tests.controlplane.process import Process, ProcessDied
from tests.controlplane.scheduler import Configuration

_READY_S = 60.0
_PORT_ATTEMPTS = 3
_ISSUER = "https://kubernetes.default.svc"


class ControlPlane:
    """One cluster's control plane; `start` returns when the API server answers and has its first namespaces.

    `users` may call with their fixed tokens besides the built-in ones; give them rights with RBAC objects or groups.
    Without `controller_manager` nobody makes service accounts, so their admission plugin is off and pods need none.
    """

    def __init__(
        self,
        binaries: Binaries,
        directory: Path,
        *,
        users: Sequence[User] = (),
        controller_manager: bool = False,
        api_server_arguments: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.schedulers: dict[str, Process] = {}
        self._binaries = binaries
        self._users = (*BUILT_IN_USERS, *users)
        self._with_controller_manager = controller_manager
        self._api_server_arguments = tuple(api_server_arguments)
        self._running: list[Process] = []

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
        """Start the processes and wait until the API server is ready; about three seconds."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.credentials: Credentials = write_credentials(self.directory, self._users)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                self._start_api_server()
            except ProcessDied as death:
                self.stop()
                if "address already in use" not in str(death) or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                break
        if self._with_controller_manager:
            self._start_controller_manager()

    def stop(self) -> None:
        """Stop everything, last started first."""
        while self._running:
            self._running.pop().stop()
        self.schedulers.clear()
        if hasattr(self, "api"):
            self.api.close()

    def start_scheduler(self, configuration: Configuration, name: str = "kube-scheduler") -> Process:
        """Start one more kube-scheduler; it looks at pods of its profiles' names as soon as its caches are filled."""
        if name in self.schedulers:
            message = f"scheduler {name!r} exists; restart its process, or give another name"
            raise ValueError(message)
        election = configuration.get("leaderElection", {})
        if election.get("leaderElect"):
            self._allow_lease(election["resourceNamespace"], election["resourceName"])
        kubeconfig = self.kubeconfig(self.directory / "scheduler.kubeconfig", SCHEDULER)
        path = self.directory / f"{name}.yaml"
        connection = {"clientConnection": {"kubeconfig": str(kubeconfig), "qps": 200, "burst": 400}}
        path.write_text(yaml.safe_dump(connection | configuration, sort_keys=False), encoding="utf-8")
        command = [str(self._binaries.path("kube-scheduler")), "--config", str(path), "--secure-port", "0", "--v", "3"]
        self.schedulers[name] = self._launch(name, command)
        return self.schedulers[name]

    def endpoint(self, user: User = ADMIN) -> Endpoint:
        """Return how to reach the API server as a token user."""
        return Endpoint(self.url, user.token, self.credentials.authority)

    def service_account(self, namespace: str, name: str) -> Endpoint:
        """Return how to reach the API server as a service account, which is created when it does not exist."""
        collection = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if not self.api.exists(f"{collection}/{name}"):
            self.api.create(collection, {"metadata": {"name": name}})
        return Endpoint(self.url, self.token(namespace, name), self.credentials.authority)

    def token(self, namespace: str, name: str, *, audience: str = _ISSUER, pod: str | None = None) -> str:
        """Return a projected token of a service account, bound to a pod when one is named; valid for an hour."""
        spec: Json = {"audiences": [audience], "expirationSeconds": 3600}
        if pod is not None:
            uid = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["metadata"]["uid"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.api.create(path, {"spec": spec})["status"]["token"])

    def kubeconfig(self, path: Path, who: User | Endpoint = ADMIN) -> Path:
        """Write a kubeconfig for a token user, or for an endpoint such as a service account's or a proxy's."""
        return write_kubeconfig(path, who if isinstance(who, Endpoint) else self.endpoint(who))

    @property
    def kubectl(self) -> Path:
        """The path of kubectl, which is built on its first use."""
        return self._binaries.path("kubectl")

    def wait_ready(self, *, within_s: float = _READY_S) -> None:
        """Wait until the API server is ready, after a restart say. Raises ProcessDied or TimeoutError with its log."""
        self.api_server.wait_until(self._is_ready, within_s=within_s)

    def check(self) -> None:
        """Raise ProcessDied when a process that should run has ended."""
        for process in self._running:
            process.check()

    def _start_api_server(self) -> None:
        client_port, peer_port, api_port = free_ports(3)
        self.url = f"https://127.0.0.1:{api_port}"
        self.etcd = self._launch("etcd", self._etcd_command(client_port, peer_port))
        self.api_server = self._launch("kube-apiserver", self._api_server_command(client_port, api_port))
        self.api = Api(self.endpoint())
        self.wait_ready()

    def _start_controller_manager(self) -> None:
        kubeconfig = self.kubeconfig(self.directory / "controller-manager.kubeconfig", CONTROLLER_MANAGER)
        command = [
            str(self._binaries.path("kube-controller-manager")),
            f"--kubeconfig={kubeconfig}",
            f"--root-ca-file={self.credentials.authority}",
            f"--service-account-private-key-file={self.credentials.service_account_key}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
        ]
        self.controller_manager = self._launch("kube-controller-manager", command)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.controller_manager.wait_until(lambda: self.api.exists(account), within_s=_READY_S)

    def _launch(self, name: str, command: list[str]) -> Process:
        process = Process(name, command, self.directory / f"{name}.log")
        self._running.append(process)
        process.start()
        return process

    def _is_ready(self) -> bool:
        self.etcd.check()
        try:
            return self.api.is_ready() and self.api.exists("/api/v1/namespaces/default")
        except httpx2.TransportError:
            return False

    def _allow_lease(self, namespace: str, name: str) -> None:
        """Let the scheduler hold a lease of another name than the one its built-in role speaks of."""
        roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}]
        role, subject = f"tangram-lease-{name}", {"kind": "User", "name": SCHEDULER.name}
        about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": role}}
        self.api.patch(f"{roles}/roles/{role}", {**about, "kind": "Role", "rules": rules}, PatchKind.APPLY)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
        binding = {**about, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
        self.api.patch(f"{roles}/rolebindings/{role}", binding, PatchKind.APPLY)

    def _etcd_command(self, client_port: int, peer_port: int) -> list[str]:
        peer, client = f"http://127.0.0.1:{peer_port}", f"http://127.0.0.1:{client_port}"
        return [
            str(self._binaries.path("etcd")),
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _api_server_command(self, etcd_port: int, api_port: int) -> list[str]:
        files = self.credentials
        accounts = [] if self._with_controller_manager else ["--disable-admission-plugins=ServiceAccount"]
        return [
            str(self._binaries.path("kube-apiserver")),
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={api_port}",
            f"--tls-cert-file={files.certificate}",
            f"--tls-private-key-file={files.key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={files.service_account_key}",
            f"--service-account-signing-key-file={files.service_account_key}",
            f"--token-auth-file={files.tokens}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            *accounts,
            *self._api_server_arguments,
        ]

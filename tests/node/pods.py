"""Pods of tests, what their containers see, and what everybody else says they have."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

from tests.controlplane.api import Api, ApiError, Json, wait_for
from tests.controlplane.books import ALLOCATION, Books, Share, annotated
from tests.node.product import BUSYBOX, Product
from tests.node.runtime import MARKS

PREFIX = "tangram.dev"
NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_TELL = (
    f'echo "visible=[$NVIDIA_VISIBLE_DEVICES] marks=[$(ls {MARKS} 2>/dev/null | tr "\\n" " ")]'
    ' mps=[$(env | grep ^CUDA_MPS | sort | tr "\\n" " ")]"'
)
_TOLD = re.compile(r"^visible=\[(?P<visible>.*)\] marks=\[(?P<marks>.*)\] mps=\[(?P<mps>.*)\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one container sees: its variable, the devices that were really mounted, and MPS' variables."""

    visible: str
    devices: tuple[str, ...]
    mps: tuple[str, ...]


def container(name: str, *, image: str = BUSYBOX, ends: bool = False, then: str = "", **asked: int) -> Json:
    """Return a container that tells what it sees, then runs `then`, and lives on unless it `ends`.

    `asked` are amounts of our resources: gpu, memory (MiB), compute (per cent of a device).
    """
    names = {"gpu": "gpu", "memory": "gpu-memory", "compute": "gpu-compute"}
    rest = [_TELL, *([then] if then else []), *([] if ends else ["trap 'exit 0' TERM; while :; do sleep 1; done"])]
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "; ".join(rest)],
        "resources": {"limits": {f"{PREFIX}/{names[each]}": str(amount) for each, amount in asked.items()}},
    }


def pod(name: str, *containers: Json, wishes: Mapping[str, str] | None = None, **spec: object) -> Json:
    """Return a pod; `wishes` are our annotations without the prefix."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {f"{PREFIX}/{key}": value for key, value in (wishes or {}).items()}},
        "spec": {"containers": list(containers), "terminationGracePeriodSeconds": 0, **spec},
    }


def allotted(found: Json) -> dict[str, tuple[str, ...]]:
    """Return the devices of each container that has some, as the allocation in the pod's annotation names them."""
    text = found["metadata"].get("annotations", {}).get(ALLOCATION)
    containers = json.loads(text)["containers"] if text else {}
    return {name: tuple(sorted(each["uuid"] for each in shares)) for name, shares in containers.items()}


def held(fleet: Json) -> Books:
    """Return who holds which share, as `/v1/fleet` tells it; an init container's beside those that follow."""
    books: Books = {}
    for device in (each for node in fleet["nodes"] for each in node["devices"]):
        for each in device["shares"]:
            share = Share(each["pod_uid"], each["container"], each["memory_mib"], each["compute_milli"])
            books.setdefault(device["uuid"], set()).add(share)
    return books


class Workload:
    """The pods of one test on the node."""

    def __init__(self, product: Product) -> None:
        self.product = product

    @property
    def api(self) -> Api:
        """The API server, also after it came back at another port."""
        return self.product.api

    def create(self, manifest: Json) -> Json:
        """Create a pod. Raises ApiError when it is refused."""
        return self.api.create(PODS, manifest)

    def run(self, manifest: Json, phase: str = "Running", *, within_s: float = 40.0) -> Json:
        """Create a pod and wait until it is in a phase; return it."""
        name = self.create(manifest)["metadata"]["name"]
        return self.wait(name, phase, within_s=within_s)

    def pod(self, name: str) -> Json:
        """Return a pod as it is now."""
        return self.api.get(f"{PODS}/{name}")

    def pods(self) -> list[Json]:
        """Return every pod of the namespace."""
        return self.api.items(PODS)

    def wait(self, name: str, phase: str = "Running", *, within_s: float = 40.0) -> Json:
        """Wait until a pod is in a phase, with all its containers started, and return it."""

        def probe() -> Json | None:
            found = self.pod(name)
            ready = phase != "Running" or _all_run(found)
            return found if found["status"].get("phase") == phase and ready else None

        try:
            return wait_for(f"pod {name} in phase {phase}", probe, within_s=within_s)
        except TimeoutError as late:
            told = self.product.kubectl("describe", "pod", name)
            raise TimeoutError(f"{late}\n{told[-3000:]}") from late

    def seen(self, found: Json) -> dict[str, Seen]:
        """Return what each container of a pod says that it sees, init containers and sidecars included."""
        spec = found["spec"]
        names = [each["name"] for each in (*spec.get("initContainers", ()), *spec["containers"])]
        return {name: self.seen_by(found, name) for name in names}

    def seen_by(self, found: Json, name: str) -> Seen:
        """Return what one container says that it sees, last."""

        def probe() -> Seen | None:
            told = list(_TOLD.finditer(self.product.logs(NAMESPACE, found["metadata"]["name"], name)))
            if not told:
                return None
            visible, marks, mps = told[-1].group("visible", "marks", "mps")
            return Seen(visible, tuple(sorted(marks.split())), tuple(mps.split()))

        return wait_for(f"container {name} of {found['metadata']['name']} tells what it sees", probe)

    def books(self) -> Books:
        """Return the extender's books, when they equal the annotations; waits, since a watch needs a moment."""
        wait_for("the books equal the annotations", lambda: held(self.product.fleet()) == annotated(self.pods()))
        return annotated(self.pods())

    def events(self, name: str) -> list[Json]:
        """Return the events about a pod."""
        query = {"fieldSelector": f"involvedObject.name={name}"}
        return self.api.items(f"/api/v1/namespaces/{NAMESPACE}/events", **query)

    def clear(self) -> None:
        """Delete every pod, and wait until nobody holds anything."""
        for each in self.pods():
            try:
                self.api.delete(f"{PODS}/{each['metadata']['name']}", grace_s=0)
            except ApiError as refusal:
                if refusal.status != httpx2.codes.NOT_FOUND:
                    raise
        wait_for("no pods are left", lambda: not self.pods())
        wait_for("the books are empty", lambda: not held(self.product.fleet()))


def _all_run(found: Json) -> bool:
    statuses = found["status"].get("containerStatuses", [])
    return bool(statuses) and all("running" in each["state"] or "terminated" in each["state"] for each in statuses)

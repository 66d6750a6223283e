"""The annotations that a Binding carries: the allocation, and each container's devices (design section 3).

These annotations are the only durable truth about allocations, so what is written is read back exactly, and what a
pod's author may have written beforehand is always overwritten: a Binding can add and overwrite keys, never delete them.

A container's devices stand under ``devices-<k>``. ``<k>`` is the key that the container's own
``NVIDIA_VISIBLE_DEVICES`` names by fieldRef; a container that names none gets ``device_key(name)``: its name, shortened
where the whole would exceed the 63 characters that Kubernetes allows. Containers that read MPS limits by fieldRef find
them under ``mps-threads-<k>`` and ``mps-memory-<k>``.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from extender.errors import InvalidAllocation
from extender.quantity import MAX_MEMORY_MIB
from scoring.errors import InvalidRequest
from scoring.request import WHOLE_MILLI, Allocation, Share, SharingMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.objects import Container, Pod

ALLOCATION_KEY = "allocation"
DEVICES_KEY = "devices-"
BOUND_LABEL = "bound"
MPS_KEY = "mps-"
MPS_THREADS_KEY = f"{MPS_KEY}threads-"
MPS_MEMORY_KEY = f"{MPS_KEY}memory-"
DEFAULT_PREFIX = "tangram.dev/"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
CDI_PREFIX = "nvidia.cdi.k8s.io/"
CDI_DOMAINS = ("nvidia.cdi.k8s.io", "cdi.k8s.io")
"""What keys begin with that name devices: NVIDIA's NRI plugin also reads its domain without a name behind it."""
CDI_DEVICE_KIND = "nvidia.com/gpu"

_MAX_KEY_LENGTH = 63
_DIGEST_LENGTH = 8
_MILLI_PER_PERCENT = 10
_ANNOTATION_PATH = re.compile(r"metadata\.annotations\['([^']+)'\]")


class Injector(StrEnum):
    """What hands the devices to the containers: the environment with NVIDIA's runtime, or NVIDIA's NRI plugin."""

    ENVIRONMENT = "environment"
    NRI = "nri"


class _Share(msgspec.Struct, frozen=True):
    uuid: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    memory_mib: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMORY_MIB)]
    compute_milli: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_MILLI)]
    mode: SharingMode


class _Allocation(msgspec.Struct, frozen=True):
    v: Literal[1]
    policy: str
    containers: dict[str, tuple[_Share, ...]]


_DECODER = msgspec.json.Decoder(_Allocation)
_ENCODER = msgspec.json.Encoder()


def encode_allocation(allocation: Allocation) -> str:
    """Return the text of the allocation annotation, version 1."""
    containers = {
        name: tuple(_Share(share.uuid, share.memory_mib, share.compute_milli, share.mode) for share in shares)
        for name, shares in allocation.containers
    }
    return _ENCODER.encode(_Allocation(1, allocation.policy, containers)).decode()


def decode_allocation(text: str) -> Allocation:
    """Return what an allocation annotation says; raise InvalidAllocation that names the field for anything else."""
    try:
        found = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem, _, path = str(error).partition(" - at `")
        raise InvalidAllocation(path.rstrip("`") or "$", problem) from error
    containers = tuple(
        (name, tuple(Share(share.uuid, share.memory_mib, share.compute_milli, share.mode) for share in shares))
        for name, shares in found.containers.items()
    )
    return Allocation(containers, found.policy)


def device_key(container: str) -> str:
    """Return the key of a container's devices, below the prefix, where the container does not name one itself.

    ``devices-`` and the name; a name of more than 55 characters is cut and ends in 8 hexadecimal digits of its SHA-256.
    """
    return _container_key(DEVICES_KEY, container)


def mps_keys(container: str) -> tuple[str, str]:
    """Return the keys of a container's MPS limits, below the prefix: per cent of threads, and pinned device memory."""
    return _container_key(MPS_THREADS_KEY, container), _container_key(MPS_MEMORY_KEY, container)


def claimed_keys(container: Container, prefix: str = DEFAULT_PREFIX) -> tuple[str, ...]:
    """Return the annotations of ours, prefix included, that the container takes its visible devices from."""
    return tuple(key for name, key in _references(container, prefix) if name == VISIBLE_DEVICES)


def owners(claims: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, str]:
    """Return which container each claimed key belongs to, from (container, claimed keys) pairs.

    Raises InvalidRequest where two containers claim one key: they could not be given different devices.
    """
    owner: dict[str, str] = {}
    for name, keys in claims:
        for key in keys:
            if owner.setdefault(key, name) != name:
                field = f"{VISIBLE_DEVICES} of container {name}"
                raise InvalidRequest(field, key, f"a key of its own; container {owner[key]} reads this one")
    return owner


def binding_annotations(
    pod: Pod, allocation: Allocation, prefix: str = DEFAULT_PREFIX, injector: Injector = Injector.ENVIRONMENT
) -> dict[str, str]:
    """Return every annotation that the Binding of this pod must carry, full keys.

    The allocation; the devices of each container that has some; the MPS limits of those that read them; and every key
    of ours that the pod refers to or carries already, empty where no device belongs to it. With the NRI injector also
    the containers' CDI names. Raises InvalidRequest where two containers claim one key, or a container's name is too
    long for a CDI key (53 characters).
    """
    devices = {name: [share.uuid for share in shares] for name, shares in allocation.containers}
    owner = _key_owners(pod, devices, prefix)
    ours = (prefix + DEVICES_KEY, prefix + MPS_KEY, *CDI_DOMAINS)
    written = {key: "" for key in pod.annotations if key.startswith(ours)}
    written |= {key: ",".join(devices.get(name, ())) for key, name in owner.items()}
    written |= _mps_limits(pod, allocation, prefix)
    if injector is Injector.NRI:
        written |= {_cdi_key(name): _cdi_names(uuids) for name, uuids in devices.items() if uuids}
    written[prefix + ALLOCATION_KEY] = encode_allocation(allocation)
    return written


def bound_labels(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a Binding with these annotations: one that carries an allocation is marked as ours.

    The policy that keeps others from binding pods of ours is asked for every such pod that is not bound yet; the label
    takes our own Bindings and, where the API server copies a Binding's labels, bound pods out of that count.
    """
    ours = (key for key in annotations if key.endswith(f"/{ALLOCATION_KEY}"))
    return {key.removesuffix(ALLOCATION_KEY) + BOUND_LABEL: "true" for key in ours}


def _mps_limits(pod: Pod, allocation: Allocation, prefix: str) -> dict[str, str]:
    """Return every MPS key that the pod refers to, with the limits that its container was given, or empty."""
    referred = {key for container in pod.all_containers() for _, key in _references(container, prefix, MPS_KEY)}
    limits: dict[str, str] = {}
    for name, shares in allocation.containers:
        values = _mps_values(shares) if shares else ("", "")
        limits |= {prefix + key: value for key, value in zip(mps_keys(name), values, strict=True)}
    return {key: limits.get(key, "") for key in referred}


def _mps_values(shares: Sequence[Share]) -> tuple[str, str]:
    """Return CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT for one container's shares.

    One percentage holds for all of a client's devices, and the client numbers them as it likes: the least of the shares
    counts for each, rounded down, so that no device gives more than is booked (node-side.md section 3.3).
    """
    per_cent = max(1, min(share.compute_milli for share in shares) // _MILLI_PER_PERCENT)
    memory_mib = min(share.memory_mib for share in shares)
    return str(per_cent), ",".join(f"{ordinal}={memory_mib}M" for ordinal in range(len(shares)))


def _container_key(begin: str, container: str) -> str:
    room = _MAX_KEY_LENGTH - len(begin)
    if len(container) <= room:
        return begin + container
    digest = hashlib.sha256(container.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{begin}{container[: room - _DIGEST_LENGTH - 1]}-{digest}"


def _key_owners(pod: Pod, devices: Iterable[str], prefix: str) -> dict[str, str]:
    """Return key -> container: claimed keys first, then default keys, then whoever else mentions a key."""
    containers = tuple(pod.all_containers())
    owner = owners((container.name, claimed_keys(container, prefix)) for container in containers)
    claiming = set(owner.values())
    for name in devices:
        if name not in claiming:
            owner.setdefault(prefix + device_key(name), name)
    by_default = {prefix + device_key(container.name): container.name for container in containers}
    for container in containers:
        for _, key in _references(container, prefix):
            owner.setdefault(key, by_default.get(key, container.name))
    return owner


def _references(container: Container, prefix: str, begin: str = DEVICES_KEY) -> list[tuple[str, str]]:
    """Return (variable, key) for every variable that shows one of our keys that begin so, key with prefix."""
    found = []
    for variable in container.env or ():
        path = _ANNOTATION_PATH.fullmatch(variable.field_path) if variable.value_from is not None else None
        if path is not None and path[1].startswith(prefix + begin):
            found.append((variable.name, path[1]))
    return found


def _cdi_key(container: str) -> str:
    name = f"container.{container}"
    if len(name) > _MAX_KEY_LENGTH:
        valid = "at most 53 characters where NVIDIA's NRI plugin injects devices"
        raise InvalidRequest("container name", container, valid)
    return CDI_PREFIX + name


def _cdi_names(uuids: list[str]) -> str:
    return ",".join(f"{CDI_DEVICE_KIND}={uuid}" for uuid in uuids)

"""The stand-alone mode on a real control plane: an existing kube-scheduler calls over mutual TLS, our lease decides."""

import ssl
from collections.abc import Iterator

import httpx2
import pytest

from extender.certificates import Audience
from tests.controlplane.api import wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.installed import NODES, SYSTEM, Installed, Pair, install, may_name_hosts
from tests.controlplane.stack import advertised
from tests.controlplane.test_lease import create, wait_running

pytestmark = pytest.mark.skipif(not may_name_hosts(), reason="a replica needs a host name of its own: unshare -u, root")

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/tangram-extender"


@pytest.fixture(scope="module")
def installed(start_control_plane: PlaneFactory) -> Iterator[Installed]:
    plane = start_control_plane(controller_manager=True)
    with install(plane, "mode=stand-alone", "webhooks.enabled=false") as release:
        yield release


@pytest.fixture(scope="module")
def replica(installed: Installed) -> Pair:
    replica = installed.start_stand_alone("replica-a")
    installed.start_agent(NODES[0], replica)
    node = f"/api/v1/nodes/{NODES[0]}"
    wait_for("the node advertises", lambda: advertised(installed.plane.api.get(node)), within_s=60)
    return replica


def test_pod_is_bound_over_mutual_tls(installed: Installed, replica: Pair) -> None:
    create(installed, "first")
    wait_running(installed, "first", 60)
    holder = installed.plane.api.get(LEASE)["spec"]["holderIdentity"]
    assert holder.startswith("replica-a_")


def test_bind_without_a_client_certificate_is_no_handshake(installed: Installed, replica: Pair) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://127.0.0.1:{replica.ports[Audience.SCHEDULER]}/v1/bind"
    with pytest.raises(httpx2.TransportError):
        httpx2.post(url, content=b"{}", verify=context, timeout=5.0, trust_env=False)


def test_lease_is_given_back_at_the_end(installed: Installed, replica: Pair) -> None:
    replica.extender.stop(within_s=15)
    assert not installed.plane.api.get(LEASE)["spec"].get("holderIdentity")

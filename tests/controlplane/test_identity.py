"""Who may report: real projected tokens, checked by a real API server, over TLS that agents can verify."""

import ssl
from collections.abc import Iterator

import httpx2
import msgspec
import pytest

from extender.admission_settings import AdmissionSettings
from extender.certificates import Audience
from extender.identity import Refusal
from extender.routes.admission import VALIDATE_PATH
from tests.controlplane.api import Json, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.installed import AGENTS, NODES, SYSTEM, Installed, Pair, install, may_name_hosts
from tests.support.builders import device, report

pytestmark = pytest.mark.skipif(not may_name_hosts(), reason="a pair needs host names of its own: unshare -u, root")

OURS, OTHER = NODES


@pytest.fixture(scope="module")
def installed(start_control_plane: PlaneFactory) -> Iterator[Installed]:
    with install(start_control_plane(controller_manager=True)) as release:
        yield release


@pytest.fixture(scope="module")
def pair(installed: Installed) -> Pair:
    return installed.start_pair("pair-a")


def push(
    installed: Installed, pair: Pair, token: str | None, node: str = OURS, body: bytes | None = None
) -> httpx2.Response:
    """Report for a node as an agent does, trusting what the extender published."""
    context = ssl.create_default_context(cadata=installed.trust())
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = f"https://localhost:{pair.ports[Audience.AGENTS]}/v1/reports"
    content = msgspec.json.encode(report(node)) if body is None else body
    return httpx2.post(url, content=content, headers=headers, verify=context, timeout=10.0, trust_env=False)


def token(installed: Installed, node: str = OURS, audience: str = "tangram") -> str:
    return installed.plane.token(AGENTS, "tangram-agent", audience=audience, pod=installed.agent_pod(node))


def counted(pair: Pair, reason: Refusal) -> float:
    line = f'tangram_extender_agent_refusals_total{{reason="{reason}"}} '
    return float(pair.ask("/metrics").text.partition(line)[2].partition("\n")[0])


def refused(installed: Installed, pair: Pair, bearer: str | None, node: str, reason: Refusal) -> int:
    """Report, check that the refusal was counted under its reason and no device came in, and return the status."""
    before = counted(pair, reason)
    answer = push(installed, pair, bearer, node)
    assert "error" in answer.json(), answer.text
    # What is scraped may be a moment old.
    wait_for(f"one more refusal for {reason}", lambda: counted(pair, reason) == before + 1, within_s=10)
    return answer.status_code


def test_node_bound_token_reports_for_its_own_node(installed: Installed, pair: Pair) -> None:
    answer = push(installed, pair, token(installed))
    assert answer.status_code == 200, answer.text


def test_token_of_another_node_is_refused(installed: Installed, pair: Pair) -> None:
    assert refused(installed, pair, token(installed, OTHER), OURS, Refusal.OTHER_NODE) == 403


def test_no_token_is_refused(installed: Installed, pair: Pair) -> None:
    assert refused(installed, pair, None, OURS, Refusal.NO_TOKEN) == 401


def test_token_for_another_audience_is_refused(installed: Installed, pair: Pair) -> None:
    assert refused(installed, pair, token(installed, audience="vault"), OURS, Refusal.WRONG_AUDIENCE) == 401


def test_forged_token_is_refused(installed: Installed, pair: Pair) -> None:
    head, claims, signature = token(installed).split(".")
    assert refused(installed, pair, f"{head}.{claims}.{signature[::-1]}", OURS, Refusal.NOT_VALID) == 401


def test_token_without_a_pod_is_refused(installed: Installed, pair: Pair) -> None:
    unbound = installed.plane.token(AGENTS, "tangram-agent", audience="tangram")
    assert refused(installed, pair, unbound, OURS, Refusal.NOT_NODE_BOUND) == 403


def test_token_of_another_account_is_refused(installed: Installed, pair: Pair) -> None:
    stranger = installed.plane.token(SYSTEM, "tangram-viewer", audience="tangram")
    assert refused(installed, pair, stranger, OURS, Refusal.WRONG_ACCOUNT) == 403


def test_expired_token_is_refused(installed: Installed, pair: Pair) -> None:
    """The least life that the API server gives is ten minutes, so this one is signed as it would, for the past."""
    assert refused(installed, pair, installed.expired_token(token(installed)), OURS, Refusal.EXPIRED) == 401


def test_token_of_a_deleted_pod_is_refused(installed: Installed, pair: Pair) -> None:
    """The API server itself remembers tokens for ten seconds, so this is one that it has not seen."""
    path = f"/api/v1/namespaces/{AGENTS}/pods/{installed.agent_pod(OTHER)}"
    late = token(installed, OTHER)
    installed.plane.api.delete(path, grace_s=0)
    wait_for("the pod is gone", lambda: not installed.plane.api.exists(path))
    assert refused(installed, pair, late, OTHER, Refusal.NOT_VALID) == 401


def test_replayed_report_changes_nothing(installed: Installed, pair: Pair) -> None:
    """Whoever recorded a report can send it again only as its own agent, and then it is older than what is known."""
    recorded = msgspec.json.encode(report(OURS, device("GPU-old")))
    assert push(installed, pair, token(installed), body=recorded).status_code == 200
    assert push(installed, pair, token(installed), body=msgspec.json.encode(report(OURS, device("GPU-new")))).is_success
    assert push(installed, pair, token(installed), body=recorded).status_code == 409
    assert push(installed, pair, None, body=recorded).status_code == 401
    found = pair.ask("/v1/fleet").text
    assert "GPU-new" in found
    assert "GPU-old" not in found


def test_oversized_review_is_refused_and_the_next_one_answered(installed: Installed, pair: Pair) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://localhost:{pair.ports[Audience.WEBHOOKS]}{VALIDATE_PATH}"
    request = {"uid": "u", "operation": "CREATE", "object": {"metadata": {"name": "p"}, "spec": {"containers": []}}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    with httpx2.Client(verify=context, timeout=10.0, trust_env=False) as client:
        refused = client.post(url, content=b" " * (AdmissionSettings().max_body_bytes + 1))
        assert refused.status_code == 413
        assert client.post(url, json=review).json()["response"]["allowed"]


def test_pod_names_are_for_the_viewers_real_token(installed: Installed, pair: Pair) -> None:
    for stranger in ("", token(installed), "made-up"):
        refused = pair.ask("/v1/audit", token=stranger)
        assert refused.status_code == 401, stranger
        assert "tangram-viewer" in refused.json()["error"]
    assert pair.ask("/v1/audit", token=installed.viewer_token()).status_code == 200


def test_real_agent_keeps_its_node_up_to_date(installed: Installed, pair: Pair) -> None:
    agent = installed.start_agent(OURS, pair)

    def probe() -> Json | None:
        found: Json = pair.ask("/v1/fleet").json()
        return found if "A100" in str(found) else None

    wait_for("the fleet shows the agent's devices", probe, within_s=30)
    agent.stop()

"""The chart on a real control plane: helm puts it in, and its programs run with its own configuration and accounts."""

from collections.abc import Iterator

import pytest

from extender.certificates import Audience
from tests.controlplane.api import Api, Json, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.installed import (
    AGENTS,
    CHART,
    NODES,
    SYSTEM,
    Installed,
    Pair,
    helm,
    install,
    label_restricted,
    may_name_hosts,
)
from tests.controlplane.stack import advertised

pytestmark = pytest.mark.skipif(not may_name_hosts(), reason="a pair needs host names of its own: unshare -u, root")

PODS = "/api/v1/namespaces/default/pods"
Rules = dict[str, set[str]]

EXTENDER_OWN: Rules = {
    "pods": {"get", "list", "watch"},
    "nodes": {"get", "list", "watch", "patch"},
    "nodes/status": {"patch"},
    "pods/binding": {"create"},
    "events": {"create"},
    "tokenreviews.authentication.k8s.io": {"create"},
    "mutatingwebhookconfigurations.admissionregistration.k8s.io [tangram]": {"get", "patch"},
    "validatingwebhookconfigurations.admissionregistration.k8s.io [tangram]": {"get", "patch"},
    "leases.coordination.k8s.io": {"create"},
    "leases.coordination.k8s.io [tangram-extender]": {"get", "update"},
    "secrets": {"create"},
    "secrets [tangram-authorities]": {"get"},
}
"""What docs/security.md says of the extender's account; the stand-alone mode adds ``pods: patch`` in its namespace."""


@pytest.fixture(scope="module")
def installed(start_control_plane: PlaneFactory) -> Iterator[Installed]:
    plane = start_control_plane(controller_manager=True)
    with install(plane) as release:
        label_restricted(plane)
        yield release


@pytest.fixture(scope="module")
def pair(installed: Installed) -> Pair:
    pair = installed.start_pair("pair-a")
    for node in NODES:
        installed.start_agent(node, pair)
    installed.lead_webhooks_to(pair)
    wait_for("every node advertises", lambda: all(map(advertised, nodes(installed))), within_s=60)
    return pair


def nodes(installed: Installed) -> list[Json]:
    return installed.plane.api.items("/api/v1/nodes")


def rules_of(installed: Installed, namespace: str, account: str, where: str) -> Rules:
    """Return what an account may do in a namespace, by resource, as the API server itself lists it."""
    endpoint = installed.plane.service_account(namespace, account)
    with Api(endpoint) as api:
        body = {"spec": {"namespace": where}}
        review = api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)
    found: Rules = {}
    for rule in review["status"]["resourceRules"]:
        names = f" [{','.join(rule['resourceNames'])}]" if rule.get("resourceNames") else ""
        for resource in rule["resources"]:
            for group in rule["apiGroups"]:
                key = f"{resource}.{group}" if group else resource
                found.setdefault(key + names, set()).update(rule["verbs"])
    return found


def without(rules: Rules, fewer: Rules) -> Rules:
    return {key: verbs - fewer.get(key, set()) for key, verbs in rules.items() if verbs - fewer.get(key, set())}


class TestInstalled:
    """Helm puts every object in, and Kubernetes makes of them what the chart means."""

    def test_release_is_deployed_and_can_be_upgraded(self, installed: Installed) -> None:
        assert "deployed" in helm(installed.plane, "status", "tangram")
        assert "REVISION: 2" in helm(installed.plane, "upgrade", "tangram", str(CHART), "--reuse-values")

    def test_daemon_set_has_a_pod_on_every_node(self, installed: Installed) -> None:
        assert all(installed.agent_pod(node) for node in NODES)

    def test_pods_of_the_pair_fit_pod_security_restricted(self, installed: Installed) -> None:
        def probe() -> bool:
            found = installed.plane.api.items(f"/api/v1/namespaces/{SYSTEM}/pods")
            return len([each for each in found if each["metadata"]["name"].startswith("tangram-extender")]) >= 2

        wait_for("both replicas have pods", probe, within_s=30)


class TestRights:
    """Each account may do what docs/security.md says, and nothing else."""

    @pytest.mark.parametrize(("namespace", "account"), [(AGENTS, "tangram-agent"), (SYSTEM, "tangram-viewer")])
    def test_agents_and_viewers_can_do_no_more_than_a_fresh_account(
        self, installed: Installed, namespace: str, account: str
    ) -> None:
        for where in ("default", SYSTEM, AGENTS):
            fresh = rules_of(installed, "default", "nobody-bound-this", where)
            assert without(rules_of(installed, namespace, account, where), fresh) == {}

    def test_extender_has_the_documented_rights_and_those_of_kube_scheduler(self, installed: Installed) -> None:
        found = without(
            rules_of(installed, SYSTEM, "tangram-extender", SYSTEM),
            rules_of(installed, "default", "nobody-bound-this", SYSTEM),
        )
        lease = "leases.coordination.k8s.io"
        paired = EXTENDER_OWN | {f"{lease} [tangram-scheduler]": EXTENDER_OWN[f"{lease} [tangram-extender]"]}
        del paired[f"{lease} [tangram-extender]"]
        assert without(without(found, paired), self.scheduler_rules(installed)) == {}
        assert without(paired, found) == {}

    def test_extender_cannot_write_pods_or_read_other_secrets(self, installed: Installed) -> None:
        found = rules_of(installed, SYSTEM, "tangram-extender", "default")
        assert not {key for key in found if key.startswith("secrets")}
        assert "update" not in found["pods"]

    def scheduler_rules(self, installed: Installed) -> Rules:
        found: Rules = {}
        for role in ("system:kube-scheduler", "system:volume-scheduler"):
            rules = installed.plane.api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")["rules"]
            for rule in rules:
                names = f" [{','.join(rule['resourceNames'])}]" if rule.get("resourceNames") else ""
                for resource in rule.get("resources", []):
                    for group in rule["apiGroups"]:
                        key = (f"{resource}.{group}" if group else resource) + names
                        found.setdefault(key, set()).update(rule["verbs"])
        return found


class TestRunning:
    """The programs, with the chart's configuration and the account's rights."""

    def test_pod_without_scheduler_name_gets_its_share(self, installed: Installed, pair: Pair) -> None:
        limits = {"tangram.dev/gpu-memory": "8192"}
        container = {"name": "main", "image": "tangram.test/pause:1", "resources": {"limits": limits}}
        installed.plane.api.create(PODS, {"metadata": {"name": "first"}, "spec": {"containers": [container]}})

        def probe() -> Json | None:
            found = installed.plane.api.get(f"{PODS}/first")
            return found if found["status"].get("phase") == "Running" else None

        bound = wait_for("the pod runs", probe, within_s=60)
        assert bound["spec"]["schedulerName"] == "tangram-scheduler"
        assert bound["spec"]["runtimeClassName"] == "nvidia"
        assert "GPU-" in bound["metadata"]["annotations"]["tangram.dev/allocation"]

    def test_pod_without_gpu_never_meets_us(self, installed: Installed, pair: Pair) -> None:
        container = {"name": "main", "image": "tangram.test/pause:1"}
        installed.plane.api.create(PODS, {"metadata": {"name": "plain"}, "spec": {"containers": [container]}})
        found = installed.plane.api.get(f"{PODS}/plain")
        assert found["spec"]["schedulerName"] == "default-scheduler"

    def test_other_listeners_do_not_know_the_verbs(self, pair: Pair) -> None:
        for audience in (Audience.PEOPLE, Audience.WEBHOOKS, Audience.AGENTS):
            assert pair.ask("/v1/bind", pair.ports[audience]).status_code == 404

    def test_refusals_are_in_the_metrics_from_the_start(self, pair: Pair) -> None:
        assert 'tangram_extender_agent_refusals_total{reason="other-node"} 0.0' in pair.ask("/metrics").text

"""The chart: every mode is valid, every value is one that the code knows, nothing has more rights than it needs."""

import json
import re
from pathlib import Path

import pytest
import yaml

from extender.certificates import Audience
from extender.deployment_settings import Mode
from extender.identity import AUDIENCE
from extender.mix_file import decode_mix, encode_mix
from extender.routes.admission import MUTATE_PATH, VALIDATE_PATH
from extender.scheduler_config import (
    HTTP_TIMEOUT_S,
    IN_TREE_POINTS,
    LEASE_DURATION_S,
    PLUGIN_RESOURCES,
    POINTS_PER_LEVEL,
    RENEW_DEADLINE_S,
    RETRY_PERIOD_S,
    WEIGHT,
    leader_election,
    mig_resources,
    scheduler_configuration,
    stand_alone_tls,
)
from extender.settings import Settings
from node_agent.settings import load_settings
from scoring.workload import Mix, Shape
from tests.manifests.check_chart import schema_problems, stale_copies
from tests.manifests.rendering import (
    CHART,
    INSTALL,
    INSTALL_VALUES,
    MODES,
    NAMESPACE,
    ROOT,
    Json,
    RenderingFailed,
    objects,
    one,
    render,
)
from tests.manifests.rendering import helm as run_helm

pytestmark = pytest.mark.usefixtures("helm")


@pytest.fixture(scope="module")
def paired(helm: None) -> list[Json]:
    return objects()


@pytest.fixture(scope="module")
def stand_alone(helm: None) -> list[Json]:
    return objects("mode=stand-alone")


@pytest.fixture(scope="module")
def kept(helm: None) -> list[Json]:
    return objects("history.persistence.enabled=true", "history.persistence.size=3Gi")


def settings_of(found: list[Json]) -> Settings:
    text = one(found, "ConfigMap", "tangram-extender")["data"]["extender.yaml"]
    return Settings(**yaml.safe_load(text))


def pod_of(found: list[Json], kind: str, name: str) -> Json:
    spec: Json = one(found, kind, name)["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("mode", MODES)
def test_every_object_of_every_mode_is_valid_for_every_supported_version(mode: str) -> None:
    assert list(schema_problems(objects(*MODES[mode]))) == []


def test_checker_sees_a_misspelt_field(paired: list[Json]) -> None:
    deployment = one(objects(), "Deployment", "tangram-extender")
    deployment["spec"]["template"]["spec"]["hostPid"] = True
    assert any("hostPid" in problem for problem in schema_problems([deployment]))


def test_install_manifest_is_what_the_chart_renders() -> None:
    assert INSTALL.read_text(encoding="utf-8") == render(*INSTALL_VALUES), "make chart ARGS=--write"


def test_chart_carries_the_dashboards_and_rules_of_today() -> None:
    assert list(stale_copies()) == []


def test_dashboards_come_as_config_maps_that_grafanas_sidecar_finds() -> None:
    found = [each for each in objects("monitoring.dashboards.enabled=true") if "grafana_dashboard" in labels_of(each)]
    originals = {path.name: json.loads(path.read_text()) for path in (ROOT / "manifests/dashboards").glob("*.json")}
    assert len(originals) == len(found) == 4
    assert {key: json.loads(text) for each in found for key, text in each["data"].items()} == originals


def test_rules_come_as_they_are_tested() -> None:
    rule = one(objects("monitoring.prometheusRule=true"), "PrometheusRule", "tangram")
    files = sorted((ROOT / "manifests/alerts").glob("*.rules.yaml"))
    assert len(files) == 2
    assert rule["spec"]["groups"] == [group for path in files for group in yaml.safe_load(path.read_text())["groups"]]


def test_nothing_for_prometheus_or_grafana_comes_unasked(paired: list[Json]) -> None:
    assert not [each for each in paired if each["kind"] in {"PrometheusRule", "ServiceMonitor", "PodMonitor"}]
    assert not [each for each in paired if "grafana_dashboard" in labels_of(each)]


def labels_of(each: Json) -> Json:
    found: Json = each["metadata"].get("labels", {})
    return found


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("mode=triple", "'/mode': value must be one of 'paired', 'stand-alone'"),
        ("extender.replicas=0", "'/extender/replicas'"),
        ("extnder.replicas=2", "additional properties 'extnder' not allowed"),
        ("prefix=no-domain", "'/prefix'"),
    ],
)
def test_wrong_value_is_refused_by_name(value: str, said: str) -> None:
    with pytest.raises(RenderingFailed, match=re.escape(said)):
        render(value)


def test_mix_of_another_cluster_is_mounted_and_read_as_it_was_exported(tmp_path: Path) -> None:
    exported = encode_mix(Mix(((Shape(1, 4_096), 1.0),)))
    (tmp_path / "mix.json").write_bytes(exported)
    flags = ("--set-file", f"extender.mix={tmp_path / 'mix.json'}")
    text = run_helm("template", "tangram", str(CHART), "-n", NAMESPACE, "--kube-version", "1.36.0", *flags)
    data = one([each for each in yaml.safe_load_all(text) if each], "ConfigMap", "tangram-extender")["data"]
    assert decode_mix(data["mix.json"].encode()) == decode_mix(exported)
    assert yaml.safe_load(data["extender.yaml"])["mix_file"] == "/etc/tangram/mix.json"


class TestSchedulerConfiguration:
    """What kube-scheduler reads equals the constants in code, value for value."""

    def test_paired(self, paired: list[Json]) -> None:
        text = one(paired, "ConfigMap", "tangram-extender")["data"]["scheduler.yaml"]
        lease = settings_of(paired).deployment.lease_name
        election = leader_election(NAMESPACE, lease)
        expected = scheduler_configuration("http://127.0.0.1:8270", election=election, every_pod=True)
        assert yaml.safe_load(text) == expected
        assert "managedResources" not in expected["extenders"][0]  # type: ignore[index]

    def test_pods_with_gpus_only(self) -> None:
        found = objects("scheduler.everyPod=false")
        text = one(found, "ConfigMap", "tangram-extender")["data"]["scheduler.yaml"]
        lease = settings_of(found).deployment.lease_name
        expected = scheduler_configuration("http://127.0.0.1:8270", election=leader_election(NAMESPACE, lease))
        assert yaml.safe_load(text) == expected
        assert "pluginConfig" not in expected["profiles"][0]  # type: ignore[index]

    def test_stand_alone_is_printed(self, stand_alone: list[Json]) -> None:
        assert "scheduler.yaml" not in one(stand_alone, "ConfigMap", "tangram-extender")["data"]
        notes = notes_of("mode=stand-alone")
        printed = yaml.safe_load(notes[notes.index("apiVersion: kubescheduler") :])
        server = f"tangram-scheduler.{NAMESPACE}.svc"
        tls = stand_alone_tls("/etc/kubernetes/tangram", server)
        assert printed == scheduler_configuration(f"https://{server}:8270", tls=tls)

    def test_numbers_fit_each_other(self) -> None:
        settings = Settings()
        assert WEIGHT * POINTS_PER_LEVEL > IN_TREE_POINTS
        assert settings.bind_deadline_s < HTTP_TIMEOUT_S < LEASE_DURATION_S
        assert RETRY_PERIOD_S < RENEW_DEADLINE_S < LEASE_DURATION_S
        assert LEASE_DURATION_S + 2 * RETRY_PERIOD_S + settings.bind_deadline_s < 20
        assert settings.deployment.lease_duration_s == LEASE_DURATION_S

    def test_managed_resources_name_nvidias_too(self) -> None:
        found = objects("scheduler.everyPod=false")
        text = one(found, "ConfigMap", "tangram-extender")["data"]["scheduler.yaml"]
        names = [each["name"] for each in yaml.safe_load(text)["extenders"][0]["managedResources"]]
        assert len(names) == len(set(names))
        assert set(PLUGIN_RESOURCES) | set(mig_resources()) < set(names)
        assert "nvidia.com/mig-1g.10gb" in names
        assert all(re.fullmatch(r"[a-z0-9.-]+/[a-z0-9]([-._a-z0-9]*[a-z0-9])?", name) for name in names)


def notes_of(*values: str) -> str:
    """Return what helm says after an install; a dry run that asks no cluster."""
    sets = [argument for value in values for argument in ("--set", value)]
    said = run_helm("install", "tangram", str(CHART), "-n", NAMESPACE, "--dry-run=client", *sets)
    return said[said.index("NOTES:") :]


class TestSettings:
    """Names in the chart are names in the code: a setting that nobody reads is refused at start."""

    def test_extender_understands_every_mode(self) -> None:
        for mode, values in MODES.items():
            settings = settings_of(objects(*values))
            assert settings.deployment.mode is (Mode.STAND_ALONE if "stand-alone" in mode else Mode.PAIRED)
            assert settings.deployment.namespace == NAMESPACE

    def test_values_arrive(self) -> None:
        found = settings_of(objects("extender.settings.policy=spread", "admission.routedNamespaces={batch}"))
        assert found.policy == "spread"
        assert found.admission.routed_namespaces == ("batch",)
        assert found.deployment.viewer_accounts == (f"system:serviceaccount:{NAMESPACE}:tangram-viewer",)

    def test_agent_understands_its_environment(self, paired: list[Json]) -> None:
        (container,) = pod_of(paired, "DaemonSet", "tangram-agent")["containers"]
        environment = {each["name"]: each.get("value", "node-a") for each in container["env"]}
        settings = load_settings(environment)
        assert settings.url_list() == [
            f"https://tangram-reports.{NAMESPACE}.svc:{settings_of(paired).deployment.agents_port}"
        ]
        assert settings.node_name() == "node-a"

    @pytest.mark.parametrize(("kind", "name"), [("Deployment", "tangram-extender"), ("DaemonSet", "tangram-agent")])
    def test_services_do_not_appear_as_settings(self, paired: list[Json], kind: str, name: str) -> None:
        # Kubernetes would add TANGRAM_PEOPLE_PORT and the like, which are refused as settings that do not exist.
        assert pod_of(paired, kind, name)["enableServiceLinks"] is False

    def test_ports_are_those_of_the_settings(self, stand_alone: list[Json]) -> None:
        (container,) = pod_of(stand_alone, "Deployment", "tangram-extender")["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        deployment = settings_of(stand_alone).deployment
        assert ports == {audience: getattr(deployment, f"{audience}_port") for audience in Audience}

    def test_webhooks_call_paths_that_exist(self, paired: list[Json]) -> None:
        for kind, path in (("Mutating", MUTATE_PATH), ("Validating", VALIDATE_PATH)):
            configuration = one(paired, f"{kind}WebhookConfiguration", "tangram")
            assert {each["clientConfig"]["service"]["path"] for each in configuration["webhooks"]} == {path}

    def test_projected_token_is_for_our_audience(self, paired: list[Json]) -> None:
        volumes = {each["name"]: each for each in pod_of(paired, "DaemonSet", "tangram-agent")["volumes"]}
        (source,) = volumes["token"]["projected"]["sources"]
        assert source["serviceAccountToken"]["audience"] == AUDIENCE

    def test_secret_entries_of_cert_manager_are_where_the_extender_looks(self) -> None:
        found = objects("mode=stand-alone", "certificates.source=cert-manager")
        (container,) = pod_of(found, "Deployment", "tangram-extender")["containers"]
        root = settings_of(found).deployment.certificates_directory
        mounted = {each["mountPath"] for each in container["volumeMounts"]}
        assert {f"{root}/{audience}" for audience in Audience} < mounted


class TestPair:
    """The pair: the extender first and asked by both probes; callers reach every replica."""

    def test_extender_is_a_native_sidecar_that_starts_first(self, paired: list[Json]) -> None:
        pod = pod_of(paired, "Deployment", "tangram-extender")
        (extender,), (scheduler,) = pod["initContainers"], pod["containers"]
        assert extender["restartPolicy"] == "Always"
        assert extender["startupProbe"]["httpGet"]["path"] == "/readyz"
        port = settings_of(paired).deployment.people_port
        assert scheduler["livenessProbe"]["httpGet"] == {"path": "/readyz", "port": port, "scheme": "HTTPS"}
        assert scheduler["image"].endswith(":v1.36.3")

    def test_verbs_are_on_loopback_only(self, paired: list[Json]) -> None:
        (extender,) = pod_of(paired, "Deployment", "tangram-extender")["initContainers"]
        assert "scheduler" not in {each["name"] for each in extender["ports"]}
        assert not [each for each in paired if each["kind"] == "Service" and "scheduler" in each["metadata"]["name"]]

    def test_agents_reach_replicas_that_are_not_ready(self, paired: list[Json]) -> None:
        service = one(paired, "Service", "tangram-reports")["spec"]
        assert service["clusterIP"] == "None"
        assert service["publishNotReadyAddresses"] is True

    def test_selectors_meet_the_pods(self, stand_alone: list[Json]) -> None:
        labels = one(stand_alone, "Deployment", "tangram-extender")["spec"]["template"]["metadata"]["labels"]
        active = {"tangram.dev/active": "true"}  # put there by the replica that acts
        for service in (each for each in stand_alone if each["kind"] == "Service"):
            assert service["spec"]["selector"].items() <= (labels | active).items()


class TestHistory:
    """Explanations on a volume of each replica's own, merged when they are asked for."""

    def test_each_replica_has_a_volume_of_its_own_and_writes_there(self, kept: list[Json]) -> None:
        spec = one(kept, "StatefulSet", "tangram-extender")["spec"]
        (claim,) = spec["volumeClaimTemplates"]
        assert claim["spec"]["resources"]["requests"]["storage"] == "3Gi"
        (extender,) = [each for each in spec["template"]["spec"]["initContainers"] if each["name"] == "extender"]
        places = {each["mountPath"]: each["name"] for each in extender["volumeMounts"]}
        settings = settings_of(kept).history
        assert places[settings.path.rpartition("/")[0]] == claim["metadata"]["name"]
        assert settings.peers_ca.startswith("/run/tangram/certificates/people/")

    def test_replicas_find_each_other_by_a_name_that_their_certificates_carry(self, kept: list[Json]) -> None:
        service = one(kept, "Service", one(kept, "StatefulSet", "tangram-extender")["spec"]["serviceName"])
        assert service["spec"]["clusterIP"] == "None"
        settings = settings_of(kept)
        host = f"{service['metadata']['name']}.{NAMESPACE}.svc"
        assert settings.history.peers == f"https://{host}:{service['spec']['ports'][0]['port']}"
        assert host in settings.deployment.service_names

    def test_nothing_of_it_comes_unasked(self, paired: list[Json]) -> None:
        assert one(paired, "Deployment", "tangram-extender")
        assert settings_of(paired).history.peers == ""


class TestSecurity:
    """What Pod Security "restricted" asks of the extender, and how little the agent has."""

    @pytest.mark.parametrize("values", [(), ("mode=stand-alone",), ("certificates.source=cert-manager",)])
    def test_extender_fits_restricted(self, values: tuple[str, ...]) -> None:
        pod = pod_of(objects(*values), "Deployment", "tangram-extender")
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
        allowed = {"configMap", "projected", "emptyDir", "secret", "name"}
        assert all(each.keys() <= allowed for each in pod["volumes"])
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert_contained(container)

    def test_agent_has_no_capability_and_no_token_for_the_api_server(self, paired: list[Json]) -> None:
        pod = pod_of(paired, "DaemonSet", "tangram-agent")
        (container,) = pod["containers"]
        assert_contained(container)
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostIPC"} & pod.keys()

    def test_nothing_is_bound_to_agents_and_viewers(self, paired: list[Json]) -> None:
        subjects = {
            subject["name"]
            for each in paired
            if each["kind"] in ("RoleBinding", "ClusterRoleBinding")
            for subject in each["subjects"]
        }
        assert subjects == {"tangram-extender"}

    def test_no_role_has_a_wildcard(self) -> None:
        for values in MODES.values():
            for each in objects(*values):
                for rule in each.get("rules", []) if each["kind"] in ("Role", "ClusterRole") else []:
                    assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def assert_contained(container: Json) -> None:
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context.get("privileged")

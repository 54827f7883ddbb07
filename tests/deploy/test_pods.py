"""Every pod of every value file: what it may do, how it is watched, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.chart import VALUE_FILES, Chart, Rendered, Workload
from tests.support.docs import parse_command

every_values = pytest.mark.parametrize("rendered", VALUE_FILES, indirect=True)
CLOSE_S = 15  # what a service needs besides draining


@every_values
def test_no_container_may_do_more_than_it_must(rendered: Rendered) -> None:
    sandboxed = rendered.isolating()
    workloads = list(rendered.workloads())
    assert len(workloads) >= 4
    for one in workloads:
        pod, container = one.spec["securityContext"], one.container["securityContext"]
        assert pod["runAsNonRoot"] is True
        assert pod["runAsUser"] > 0
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["runAsNonRoot"] is True
        assert container["readOnlyRootFilesystem"] is True
        assert container["allowPrivilegeEscalation"] is False
        assert container["privileged"] is False
        assert container["capabilities"] == {"drop": ["ALL"]}
        # Only a sandbox of its own needs other profiles, and has a user namespace then.
        widened = {"seccompProfile", "appArmorProfile", "procMount"} & container.keys()
        assert bool(widened) == (one.name in sandboxed), one.name
        assert ("hostUsers" in one.spec) == (one.name in sandboxed)
        for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
            assert forbidden not in one.spec
        assert all("hostPath" not in volume for volume in one.spec.get("volumes", ()))


@every_values
def test_every_container_has_requests_and_a_memory_limit(rendered: Rendered) -> None:
    for one in rendered.workloads():
        resources = one.container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), one.name
        assert "memory" in resources["limits"], one.name


@every_values
def test_mounts_have_their_volumes_and_writing_has_a_bound(rendered: Rendered) -> None:
    for one in rendered.workloads():
        volumes = {volume["name"]: volume for volume in one.spec.get("volumes", ())}
        claimed = one.manifest["spec"].get("volumeClaimTemplates", ())
        volumes |= {claim["metadata"]["name"]: claim for claim in claimed}
        mounts = one.container.get("volumeMounts", ())
        assert {mount["name"] for mount in mounts} == volumes.keys(), one.name
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
        for volume in volumes.values():
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"], volume
    for one in rendered.services():
        writable = {
            mount["mountPath"] for mount in one.container["volumeMounts"] if "readOnly" not in mount
        }
        assert writable == {"/tmp", "/var/cache/gymmesh"}


@every_values
def test_services_are_probed_where_they_serve_health(rendered: Rendered) -> None:
    for one in rendered.services():
        container = one.container
        port = int(_option(container, "--health-port"))
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["grpc"] == {"port": port}, one.name
        assert container["lifecycle"]["preStop"]["sleep"]["seconds"] > 0


@every_values
def test_ports_agree_with_what_the_service_is_started_with(rendered: Rendered) -> None:
    services = rendered.of("Service")
    for one in rendered.services():
        container = one.container
        named = {port["name"]: port["containerPort"] for port in container["ports"]}
        started = {
            name: int(_option(container, option))
            for name, option in (
                ("grpc", "--port"),
                ("health", "--health-port"),
                ("metrics", "--metrics-port"),
            )
        }
        # Where the agent's gateway listens, its part of the mesh file says.
        assert ("gateway" in named) == (one.name == "mesh-gymmesh-agent-coder")
        assert {name: port for name, port in named.items() if name != "gateway"} == started
        (service,) = (each for each in services if _selects(each, one))
        ports = {port["name"]: port for port in service["spec"]["ports"]}
        for name, port in ports.items():
            assert port["targetPort"] == name
            # A headless Service has no ports of its own: its clients connect to the pods'.
            assert port["port"] == named[name]
        assert ports.keys() == named.keys()


@every_values
def test_selectors_find_the_pods_of_one_service_and_no_others(rendered: Rendered) -> None:
    workloads = list(rendered.workloads())
    for one in workloads:
        selector = one.manifest["spec"].get("selector", {}).get("matchLabels")
        if one.manifest["kind"] in ("Deployment", "StatefulSet"):
            found = [other.name for other in workloads if _matches(selector, other)]
            assert found == [one.name]
    for kind in ("Service", "PodDisruptionBudget"):
        for each in rendered.of(kind):
            found = [other.name for other in workloads if _selects(each, other)]
            assert found == [each["metadata"]["name"]]


@every_values
def test_the_command_is_one_that_gym_cli_takes(rendered: Rendered) -> None:
    for one in rendered.services():
        assert "command" not in one.container  # the image's, which is gym-cli under an init
        parse_command(one.container["args"])
    for one in rendered.workloads():
        if one.container["name"] == "collect":
            parse_command(["collect", "--output", "rollouts.jsonl", *one.container["args"]])


@every_values
def test_a_pod_has_the_time_to_drain(rendered: Rendered) -> None:
    drain = rendered.values().get("drainSeconds", 180)
    for one in rendered.services():
        before = one.container["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert one.spec["terminationGracePeriodSeconds"] >= before + drain + CLOSE_S


@every_values
def test_service_account_tokens_are_where_the_api_server_is_called(rendered: Rendered) -> None:
    values = rendered.values()
    backend = values.get("discovery", {}).get("backend", "kubernetes")
    callers = {"mesh-gymmesh-discovery"} if backend == "kubernetes" else set()
    callers |= {
        f"mesh-gymmesh-sandbox-{name}"
        for name, one in values.get("sandboxes", {}).items()
        if one["config"].get("backend") == "kubernetes"
    }
    with_token = {
        one.name
        for one in rendered.workloads()
        if one.spec.get("automountServiceAccountToken") is not False
    }
    assert with_token == callers
    roles = {one["metadata"]["name"]: one for one in rendered.of("Role")}
    bindings = {one["metadata"]["name"]: one for one in rendered.of("RoleBinding")}
    assert roles.keys() == bindings.keys() == callers
    assert not rendered.of("ClusterRole")
    accounts = {one.name: one.spec["serviceAccountName"] for one in rendered.services()}
    for name, binding in bindings.items():
        (subject,) = binding["subjects"]
        assert binding["roleRef"]["name"] == name
        assert (subject["name"], subject["namespace"]) == (accounts[name], "rollouts")
        # Nobody else has the account, whose token may do this.
        assert [one for one, account in accounts.items() if account == accounts[name]] == [name]
    for name in callers & {"mesh-gymmesh-discovery"}:
        assert roles[name]["rules"] == [
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["list", "watch"],
            }
        ]


def test_every_sandbox_service_has_an_account_of_its_own(chart: Chart) -> None:
    rendered = chart.render("sandboxes")
    accounts = {one.name: one.spec["serviceAccountName"] for one in rendered.services()}
    own = {name: one for name, one in accounts.items() if "-sandbox-" in name}
    assert len(set(own.values())) == len(own) == 4
    assert not set(own.values()) & {one for name, one in accounts.items() if name not in own}
    made = {one["metadata"]["name"] for one in rendered.of("ServiceAccount")}
    assert set(accounts.values()) <= made


def test_a_sandbox_service_may_do_to_pods_what_its_backend_asks_for(chart: Chart) -> None:
    rendered = chart.render("sandboxes")
    roles = {one["metadata"]["name"]: one for one in rendered.of("Role")}
    may = {
        name: {
            (resource, verb)
            for rule in roles[f"mesh-gymmesh-sandbox-{name}"]["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for name in ("pods", "claimed")
    }
    either = {("pods", one) for one in ("get", "list", "watch")} | {
        (resource, verb)
        for resource in ("pods/exec", "pods/portforward")
        for verb in ("create", "get")
    }
    assert may["pods"] == either | {
        ("pods", "create"),
        ("pods", "delete"),
        ("networkpolicies", "create"),
    }
    assert may["claimed"] == either | {("sandboxes", "get")} | {
        ("sandboxclaims", verb) for verb in ("create", "delete", "get", "list", "watch")
    }
    for name in may:
        assert roles[f"mesh-gymmesh-sandbox-{name}"]["metadata"]["namespace"] == "sandboxes"


def test_bubblewrap_is_in_the_image_of_the_services_that_use_it(chart: Chart) -> None:
    rendered = chart.render("sandboxes")
    images = {one.name: one.container["image"].partition(":")[0] for one in rendered.services()}
    using = {name for name, image in images.items() if image == "gymmesh-sandbox"}
    assert using == rendered.isolating() == {"mesh-gymmesh-sandbox-boxes"}


@every_values
def test_secrets_are_named_and_never_made(rendered: Rendered) -> None:
    assert not rendered.of("Secret")


def test_a_models_key_is_in_its_own_pods_alone(chart: Chart) -> None:
    rendered = chart.render("external-vllm")
    holders = {
        one.name: sorted(
            env["name"]
            for env in one.container["env"]
            if "secretKeyRef" in env.get("valueFrom", {})
        )
        for one in rendered.services()
    }
    assert {name: keys for name, keys in holders.items() if keys} == {
        "mesh-gymmesh-model-policy": ["GYMMESH_KEY_POLICY"],
        "mesh-gymmesh-model-judge": ["GYMMESH_KEY_JUDGE"],
    }


def test_a_change_ends_the_pods_of_its_service_alone(chart: Chart) -> None:
    before, after = (
        {
            one.name: one.template["metadata"]["annotations"]["checksum/mesh"]
            for one in chart.render("external-vllm", *more).services()
        }
        for more in (("--set", "host=0.0.0.0"), ("--set", "agents.tool_loop.config.max_steps=9"))
    )
    changed = [name for name in before if before[name] != after[name]]
    assert changed == ["mesh-gymmesh-agent-tool-loop"]


def test_a_memory_registry_is_alone_and_never_two(chart: Chart) -> None:
    (registry,) = (
        one for one in chart.render("small").services() if one.name == "mesh-gymmesh-discovery"
    )
    assert registry.manifest["spec"]["replicas"] == 1
    assert registry.manifest["spec"]["strategy"] == {"type": "Recreate"}


def _option(container: dict[str, Any], name: str) -> str:
    (found,) = (arg for arg in container["args"] if arg.startswith(f"{name}="))
    value: str = found.partition("=")[2]
    return value


def _matches(selector: dict[str, str], workload: Workload) -> bool:
    return selector.items() <= workload.labels.items()


def _selects(manifest: dict[str, Any], workload: Workload) -> bool:
    selector = manifest["spec"]["selector"]
    return _matches(selector.get("matchLabels", selector), workload)

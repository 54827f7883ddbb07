"""NetworkPolicies allow what docs/how-to/services.md says that the mesh does, and nothing else.

The policies are evaluated as Kubernetes does it: a pod that some policy selects for a direction may
do in it what one of them allows, and a pod that none selects may do anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final

import pytest

from tests.deploy.chart import NAMESPACE, VALUE_FILES, Chart, Rendered

every_values = pytest.mark.parametrize("rendered", VALUE_FILES, indirect=True)

GRPC: Final = 9400
HEALTH: Final = 9401
METRICS: Final = 9464
VLLM: Final = 8000
OTLP: Final = 4317
GATEWAY: Final = 9402
Pod = tuple[str, dict[str, str]]  # namespace and labels

# From docs/how-to/services.md, "Who calls whom". With Consul nobody needs the discovery service.
CALLS: Final = {
    ("collector", "agent"),
    ("agent", "environment"),
    ("agent", "model"),
    ("agent", "sandbox"),
    ("environment", "model"),
    ("environment", "sandbox"),
}
TO_REGISTRY: Final = {
    (caller, "discovery") for caller in ("collector", "agent", "environment", "model", "sandbox")
}


@every_values
def test_between_pods_exactly_what_the_mesh_does_is_allowed(rendered: Rendered) -> None:
    policies = rendered.of("NetworkPolicy")
    values = rendered.values()
    if values.get("networkPolicy", {}).get("enabled") is False:
        assert not policies
        return
    consul = values.get("discovery", {}).get("backend") == "consul"
    pods = _pods(rendered)
    allowed = {
        (caller, called, port)
        for (caller, one), (called, other), port in product(
            pods.items(), pods.items(), (GRPC, HEALTH, METRICS, VLLM)
        )
        if called != "test" and _may(policies, one, other, port)
    }
    wanted = {(*pair, GRPC) for pair in (CALLS if consul else CALLS | TO_REGISTRY)}
    wanted |= {("test", called, HEALTH) for called in pods.keys() & _OURS}
    if "vllm" in pods:
        wanted |= {("model", "vllm", VLLM)}
    wanted = {one for one in wanted if {one[0], one[1]} <= pods.keys()}
    assert allowed == wanted


_OURS: Final = frozenset(("agent", "environment", "model", "sandbox", "discovery"))


@every_values
def test_strangers_are_let_in_nowhere_and_monitoring_to_metrics_alone(rendered: Rendered) -> None:
    policies = rendered.of("NetworkPolicy")
    if not policies:
        return
    stranger: Pod = (NAMESPACE, {"app": "something-else"})
    elsewhere: Pod = ("default", {"app.kubernetes.io/component": "collector"})
    prometheus: Pod = ("monitoring", {"app": "prometheus"})
    for name, pod in _pods(rendered).items():
        if name == "test":
            continue
        for port in (GRPC, HEALTH, METRICS, VLLM):
            assert not _may(policies, stranger, pod, port), name
            assert not _may(policies, elsewhere, pod, port), name
            scraped = port == (VLLM if name == "vllm" else METRICS) and name != "collector"
            assert _may(policies, prometheus, pod, port) == scraped, (name, port)


def test_a_collector_elsewhere_is_let_in_where_it_is_named(chart: Chart) -> None:
    rendered = chart.render("ha")
    policies, pods = rendered.of("NetworkPolicy"), _pods(rendered)
    trainer: Pod = ("training", {"app": "trainer"})
    reached = {name for name, pod in pods.items() if _may(policies, trainer, pod, GRPC)}
    assert reached - {"test"} == {"agent", "discovery"}  # no policy is about the test's pod


def test_what_leaves_the_cluster_is_what_needs_to(chart: Chart) -> None:
    outward = {
        policy["metadata"]["name"]: [
            rule
            for rule in policy["spec"].get("egress", ())
            if not rule.get("to") or any("podSelector" not in to for to in rule["to"])
            if rule["ports"][0]["port"] not in (53, 5353)  # names, which nodes resolve, too
        ]
        for policy in chart.render("external-vllm").of("NetworkPolicy")
    }
    leaving = {name.removeprefix("mesh-gymmesh-") for name, rules in outward.items() if rules}
    assert leaving == {"model", "discovery"}  # the latter for the API server
    ports = [port["port"] for rule in outward["mesh-gymmesh-discovery"] for port in rule["ports"]]
    assert ports == [443, 6443]


SANDBOXES: Final = "sandboxes"
_POD: Final = {"gymmesh.io/sandbox": "sb-1"}
_KINDS: Final = ("none", "open")


def test_pods_of_sandboxes_call_nobody_unless_their_network_is_open(chart: Chart) -> None:
    policies = chart.render("sandboxes").of("NetworkPolicy")
    pods = {kind: (SANDBOXES, _POD | {"gymmesh.io/sandbox-network": kind}) for kind in _KINDS}
    daemon: Pod = ("containers", {"app": "docker"})
    dns: Pod = ("kube-system", {"k8s-app": "kube-dns"})
    for kind, pod in pods.items():
        assert _may(policies, pod, dns, 53) == (kind == "open")
        assert _may(policies, pod, daemon, 2375) == (kind == "open")
        for other in (*pods.values(), ("default", {}), (NAMESPACE, {})):
            assert not _may(policies, pod, other, GRPC)
            assert not _may(policies, other, pod, GRPC)
    # Others' pods in that namespace are none of the chart's business.
    assert _may(policies, (SANDBOXES, {"app": "other"}), ("default", {}), GRPC)


def test_only_a_service_whose_sandboxes_are_pods_reaches_the_api_server(chart: Chart) -> None:
    rendered = chart.render("sandboxes")
    policies = rendered.of("NetworkPolicy")
    services = {
        one.labels["gymmesh.io/name"]: (NAMESPACE, one.labels)
        for one in rendered.services()
        if one.labels["app.kubernetes.io/component"] == "sandbox"
    }
    reach = {name for name, pod in services.items() if _may(policies, pod, ("default", {}), 6443)}
    assert reach == {"pods", "claimed"}
    # By lists of hosts and open networks.
    assert all(_may(policies, pod, ("containers", {}), 2375) for pod in services.values())
    closed = chart.render("sandboxes", "--set-json=networkPolicy.sandboxEgress=[]")
    policies = closed.of("NetworkPolicy")
    assert not any(_may(policies, pod, ("containers", {}), 2375) for pod in services.values())


def test_sandbox_services_alone_reach_the_gateways_that_are_for_programs_in_sandboxes(
    chart: Chart,
) -> None:
    rendered = chart.render("sandboxes")
    policies = rendered.of("NetworkPolicy")
    services = {one.name.removeprefix("mesh-gymmesh-"): one for one in rendered.services()}
    agents = {name: one for name, one in services.items() if name.startswith("agent-")}
    assert agents.keys() == {"agent-tool-loop", "agent-coder"}
    open_to = {
        (caller, called)
        for (caller, one), (called, other) in product(services.items(), agents.items())
        if _may(policies, (NAMESPACE, one.labels), (NAMESPACE, other.labels), GATEWAY)
    }
    assert open_to == {(name, "agent-coder") for name in services if name.startswith("sandbox-")}
    # The pods of sandboxes have no relay, and reach nothing of the mesh.
    coder: Pod = (NAMESPACE, agents["agent-coder"].labels)
    for kind in (*_KINDS, "relay"):
        pod: Pod = (SANDBOXES, _POD | {"gymmesh.io/sandbox-network": kind})
        assert not _may(policies, pod, coder, GATEWAY)
    assert not _may(chart.render("ha").of("NetworkPolicy"), coder, coder, GATEWAY)


@every_values
def test_traces_may_leave_where_there_is_a_receiver_of_them(rendered: Rendered) -> None:
    receiver: Pod = ("monitoring", {"app": "otel-collector"})
    policies, traced = rendered.of("NetworkPolicy"), "traces" in rendered.values()
    for name, pod in _pods(rendered).items():
        if policies and name in _OURS:
            assert _may(policies, pod, receiver, OTLP) == traced, name
            assert not _may(policies, pod, ("default", {}), OTLP), name


@every_values
def test_all_can_resolve_names(rendered: Rendered) -> None:
    dns: Pod = ("kube-system", {"k8s-app": "kube-dns"})
    for name, pod in _pods(rendered).items():
        assert _may(rendered.of("NetworkPolicy"), pod, dns, 53), name


@every_values
def test_names_are_resolved_by_nodes_caches_and_in_openshift_too(rendered: Rendered) -> None:
    cache: Pod = ("kube-system", {"k8s-app": "node-local-dns"})
    openshift: Pod = ("openshift-dns", {"dns.operator.openshift.io/daemonset-dns": "default"})
    policies = rendered.of("NetworkPolicy")
    for name, pod in _pods(rendered).items():
        assert _may(policies, pod, cache, 53), name
        assert _may(policies, pod, openshift, 5353), name
    whole = {f"mesh-gymmesh-{component}" for component in (*_OURS, "collector")}
    for policy in policies:
        if policy["metadata"]["name"] not in whole:
            continue  # it adds to another, or is about sandboxes' pods
        peers = [to for one in policy["spec"].get("egress", []) for to in one.get("to", [])]
        assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in peers


def _pods(rendered: Rendered) -> dict[str, Pod]:
    """One pod of each component."""
    return {
        one.labels["app.kubernetes.io/component"]: (NAMESPACE, one.labels)
        for one in rendered.workloads()
    }


def _may(policies: list[dict[str, Any]], caller: Pod, called: Pod, port: int) -> bool:
    out = list(_rules(policies, caller, "Egress"))
    into = list(_rules(policies, called, "Ingress"))
    return _allows(out, "to", called, port) and _allows(into, "from", caller, port)


def _rules(
    policies: list[dict[str, Any]], pod: Pod, direction: str
) -> Iterator[list[dict[str, Any]]]:
    """The rules of each policy that selects the pod for a direction."""
    for policy in policies:
        spec = policy["spec"]
        space = policy["metadata"].get("namespace", NAMESPACE)
        ours = pod[0] == space and direction in spec["policyTypes"]
        if ours and _chosen(spec["podSelector"], pod[1]):
            yield spec.get(direction.lower(), [])


def _allows(selected: Iterable[list[dict[str, Any]]], side: str, other: Pod, port: int) -> bool:
    selected = list(selected)
    if not selected:
        return True
    return any(
        (not rule.get(side) or any(_peer(one, other) for one in rule[side]))
        and (not rule.get("ports") or any(one["port"] == port for one in rule["ports"]))
        for rules in selected
        for rule in rules
    )


def _peer(peer: dict[str, Any], pod: Pod) -> bool:
    if "ipBlock" in peer:
        return False  # pods have addresses of the cluster
    spaces = peer.get("namespaceSelector")
    if spaces is None:
        if pod[0] != NAMESPACE:
            return False
    elif not _chosen(spaces, {"kubernetes.io/metadata.name": pod[0]}):
        return False
    return _chosen(peer.get("podSelector", {}), pod[1])


def _chosen(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    wanted: dict[str, str] = selector.get("matchLabels", {})
    for one in selector.get("matchExpressions", ()):
        assert one["operator"] == "Exists"
        if one["key"] not in labels:
            return False
    return wanted.items() <= labels.items()

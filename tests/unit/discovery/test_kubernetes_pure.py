"""Kubernetes' registry without Kubernetes: slices, and the view that is made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.backends.kubernetes.entry import health_of, read_slice
from gymmesh_discovery.backends.kubernetes.objects import (
    Conditions,
    EndpointSlice,
    UnreadableError,
    read,
)
from gymmesh_discovery.backends.kubernetes.registry_view import KubernetesView
from gymmesh_discovery.registry_view import Change
from gymmesh_mesh import MeshConfig
from gymmesh_mesh.compose import registry_spec
from tests.unit.discovery.kubernetes_slices import AGENT, MODEL, RESOURCE, endpoint, slice_of


def instances_of(raw: dict[str, Any]) -> list[pb.Instance]:
    """The instances of a slice in which nothing is wrong."""
    instances, left_out = read_raw(raw)
    assert left_out == []
    return instances


def read_raw(raw: dict[str, Any]) -> tuple[list[pb.Instance], list[str]]:
    return read_slice(read(json.dumps(raw).encode(), EndpointSlice), "grpc", "metrics")


# ---- slices


def test_a_slice_of_a_labelled_service() -> None:
    labels = {
        "gymmesh.io/contract": "1.0",
        "gymmesh.io/weight": "3",
        "gymmesh.io/keepalive_s": "20",
    }
    ports = [{"name": "metrics", "port": 9100}, {"name": "grpc", "port": 9400}]
    found = slice_of(
        endpoint("10.0.0.7", "u-1", zone="eu-1a", nodeName="node-3"),
        endpoint("10.0.0.8", "u-2", ready=False),
        labels=labels,
        ports=ports,
    )
    first, second = instances_of(found)
    assert first == pb.Instance(
        id="model-policy-u-1",
        service=MODEL,
        name="policy",
        address="10.0.0.7:9400",
        contract_version="1.0",
        meta={"keepalive_s": "20", "kubernetes_service": "policy", "pod": "pod-u-1"},
        weight=3,
        locality=pb.Locality(zone="eu-1a", host="node-3"),
        health=pb.HEALTH_SERVING,
        metrics_address="10.0.0.7:9100",
    )
    assert second.health == pb.HEALTH_NOT_SERVING
    assert not second.HasField("locality")


def test_each_endpoint_has_a_gateway_of_its_own_where_the_service_has_a_port_for_it() -> None:
    ports = [{"name": "gateway", "port": 9402}, {"name": "grpc", "port": 9400}]
    found = slice_of(
        endpoint("10.0.0.7", "u-1"), endpoint("fd00::8", "u-2"), service="agent", ports=ports
    )
    gateways = [one.meta["gateway"] for one in instances_of(found)]
    assert gateways == ["10.0.0.7:9402", "[fd00::8]:9402"]
    (without,) = instances_of(slice_of(endpoint("10.0.0.7", "u-1"), service="agent"))
    assert "gateway" not in without.meta


@pytest.mark.parametrize(
    ("kind", "service", "prefix"),
    [
        ("agent", AGENT, "agent"),
        ("model", MODEL, "model"),
        ("resource", RESOURCE, "environment"),  # as `gym-cli up` calls its instances
        ("sandbox", "gymmesh.sandbox.v1.SandboxService", "sandbox"),
        ("discovery", "gymmesh.discovery.v1.DiscoveryService", "registry"),
        ("lab.v2.Oracle", "lab.v2.Oracle", "lab.v2.Oracle"),
    ],
)
def test_kinds(kind: str, service: str, prefix: str) -> None:
    (instance,) = instances_of(slice_of(endpoint(uid="u"), service=kind, called="tool_loop"))
    assert (instance.service, instance.id) == (service, f"{prefix}-tool_loop-u")


def test_the_meshs_own_registry_is_called_as_it_calls_itself() -> None:
    registry = slice_of(endpoint(uid="u"), service="discovery", called="registry")
    (instance,) = instances_of(registry)
    spec = registry_spec(MeshConfig(), "u")
    assert instance.id == spec.instance_id == "registry-u"


def test_an_endpoint_that_is_no_pod_is_called_by_its_address() -> None:
    outside = {"addresses": ["2001:db8::2"], "conditions": {}}
    (instance,) = instances_of(slice_of(outside, addressType="IPv6"))
    assert instance.address == "[2001:db8::2]:9400"
    assert instance.id == "model-policy-[2001:db8::2]:9400"
    assert instance.health == pb.HEALTH_SERVING


def test_annotations_say_what_no_label_can() -> None:
    found = slice_of(endpoint())
    found["metadata"]["annotations"] = {"gymmesh.io/name": "Qwen/Qwen3 0.6B", "other.io/a": "b"}
    (instance,) = instances_of(found)
    assert instance.name == "Qwen/Qwen3 0.6B"
    assert dict(instance.meta) == {"kubernetes_service": "policy", "pod": "pod-u-1"}


@pytest.mark.parametrize(
    ("conditions", "health"),
    [
        ((None, None, None), pb.HEALTH_SERVING),
        ((True, True, False), pb.HEALTH_SERVING),
        ((True, None, None), pb.HEALTH_SERVING),
        ((False, False, False), pb.HEALTH_NOT_SERVING),
        ((False, True, True), pb.HEALTH_DRAINING),
        ((False, False, True), pb.HEALTH_NOT_SERVING),
        ((False, None, True), pb.HEALTH_NOT_SERVING),
        # Of a Service that publishes endpoints that are not ready.
        ((True, True, True), pb.HEALTH_DRAINING),
    ],
)
def test_health(conditions: tuple[bool | None, ...], health: int) -> None:
    assert health_of(Conditions(*conditions)) == health


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"service": "robot"},
            "EndpointSlice's label gymmesh.io/service is 'robot'; expected agent, model,",
        ),
        ({"called": ""}, "has no label gymmesh.io/name"),
        ({"labels": {"gymmesh.io/contract": "9.0"}}, "the instance uses contract version '9.0'"),
        ({"labels": {"gymmesh.io/weight": "0"}}, "gymmesh.io/weight is not a number from 1"),
        ({"labels": {"gymmesh.io/weight": "many"}}, "gymmesh.io/weight is not a number from 1"),
        ({"labels": {f"gymmesh.io/{n}": "" for n in range(63)}}, "more than 61 labels"),
        (
            {"ports": [{"name": "http", "port": 8080}]},
            "no port named 'grpc'. Named ports: 'ht",
        ),
        ({"ports": None}, "no port named 'grpc'. Named ports: none"),
        ({"called": "x" * 513}, "exceeds 512 characters"),
        ({"labels": {"gymmesh.io/a\0": ""}}, "zone or node of the endpoint has control characters"),
    ],
)
def test_a_slice_that_is_left_out(change: dict[str, Any], problem: str) -> None:
    instances, (line,) = read_raw(slice_of(endpoint(), **change))
    assert instances == []
    assert "policy-abc12: " in line
    assert problem in line


def test_an_endpoint_that_is_left_out() -> None:
    good, bad = endpoint("10.0.0.7", "u-1"), endpoint("10.0.0.8", "u-2")
    bad["addresses"] = []
    instances, lines = read_raw(slice_of(good, bad))
    assert [one.id for one in instances] == ["model-policy-u-1"]
    assert lines == [
        "skipped an endpoint of the EndpointSlice policy-abc12: the endpoint has no address"
    ]


@pytest.mark.parametrize("nothing", [None, []])
def test_a_service_without_pods_is_nothing_to_complain_of(nothing: list[Any] | None) -> None:
    """Its slice names no ports yet: they are looked up in pods."""
    assert instances_of(slice_of(endpoints=nothing, ports=None)) == []


@pytest.mark.parametrize("text", [b"<html>", b"7", b'{"metadata": 7}', b"[" * 100_000, b"\xff"])
def test_what_is_no_slice(text: bytes) -> None:
    with pytest.raises(UnreadableError):
        read(text, EndpointSlice)


# ---- the view


def instance(
    instance_id: str, address: str = "10.0.0.1:9", health: pb.Health.ValueType = pb.HEALTH_SERVING
) -> pb.Instance:
    return pb.Instance(id=instance_id, service=MODEL, name="policy", address=address, health=health)


def ids(view: KubernetesView) -> list[str]:
    return [one.id for one in view.instances()]


def leased(one: pb.Instance, *, removed: bool = False) -> Change:
    return Change(1, one, removed, one if removed else None)


def test_slices_come_change_and_go() -> None:
    view = KubernetesView()
    a, b = instance("a", "10.0.0.1:9"), instance("b", "10.0.0.2:9")
    assert [one.version for one in view.put("s", [a, b])] == [1, 2]
    assert view.put("s", [a, b]) == []
    drains = instance("a", "10.0.0.1:9", pb.HEALTH_DRAINING)
    assert view.put("s", [drains, b]) == [Change(3, drains, False, a)]
    assert view.put("s", [drains]) == [Change(4, b, True, b)]
    assert view.put("s", []) == [Change(5, drains, True, drains)]
    assert view.put("s", []) == []
    assert ids(view) == []


def test_a_list_replaces_all_slices() -> None:
    view = KubernetesView()
    view.put("gone", [instance("a", "10.0.0.1:9")])
    view.put("kept", [instance("b", "10.0.0.2:9")])
    changes = view.replace(
        {"kept": [instance("b", "10.0.0.2:9")], "new": [instance("c", "10.0.0.3:9")]}
    )
    assert [(one.instance.id, one.removed) for one in changes] == [("a", True), ("c", False)]
    assert ids(view) == ["b", "c"]


def test_an_endpoint_that_moves_from_one_slice_to_another_stays() -> None:
    view = KubernetesView()
    a = instance("a")
    view.put("one", [a])
    assert view.put("two", [a]) == []
    assert view.put("one", []) == []
    assert ids(view) == ["a"]


def test_a_pod_in_several_slices_is_one_instance_and_always_the_same() -> None:
    four, six = instance("a", "10.0.0.1:9"), instance("a", "[2001:db8::1]:9")
    for first, second in ((four, six), (six, four)):
        view = KubernetesView()
        view.put("one", [first])
        view.put("two", [second])
        assert [one.address for one in view.instances()] == ["10.0.0.1:9"]
    ends = instance("a", "10.0.0.1:9", pb.HEALTH_NOT_SERVING)
    view.put("two", [ends])  # the other slice says that it serves
    assert [one.address for one in view.instances()] == ["[2001:db8::1]:9"]


def test_registrations_stand_beside() -> None:
    view = KubernetesView()
    outside = instance("outside", "192.0.2.1:9")
    assert view.lease(leased(outside)) == [Change(1, outside, False, None)]
    view.put("s", [instance("inside", "10.0.0.1:9")])
    assert ids(view) == ["inside", "outside"]
    assert view.instances(AGENT) == []
    assert view.lease(leased(outside, removed=True)) == [Change(3, outside, True, outside)]


@pytest.mark.parametrize("same_id", [True, False])
def test_kubernetes_stands_for_a_pod_that_registered(same_id: bool) -> None:
    view = KubernetesView()
    pod = instance("inside", "10.0.0.1:9", pb.HEALTH_NOT_SERVING)
    mine = instance("inside" if same_id else "mine", "10.0.0.1:9")
    view.lease(leased(mine))
    view.put("s", [pod])
    assert view.instances() == [pod]
    view.put("s", [])
    assert view.instances() == [mine]  # its lease lives, whatever Kubernetes lists


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "replace", "lease", "end"]),
            st.sampled_from(["s", "t"]),
            st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2"])), max_size=3),
        ),
        max_size=25,
    )
)
def test_the_changes_are_what_changed(steps: list[tuple[str, str, list[tuple[str, str]]]]) -> None:
    """Whoever applies the changes to a snapshot holds the next snapshot."""
    view = KubernetesView()
    followed: dict[str, pb.Instance] = {}
    version = 0
    for verb, name, rows in steps:
        those = [instance(key, f"10.0.0.{host}:9") for key, host in rows]
        if verb == "put":
            changes = view.put(name, those)
        elif verb == "replace":
            changes = view.replace({name: those})
        else:
            changes = [
                change for one in those for change in view.lease(leased(one, removed=verb == "end"))
            ]
        for change in changes:
            version += 1
            assert change.version == version
            assert change.before == followed.get(change.instance.id)
            if change.removed:
                del followed[change.instance.id]
            else:
                followed[change.instance.id] = change.instance
        assert [followed[key] for key in sorted(followed)] == view.instances()
    assert view.version == version
    view.replace({})
    assert not view._endpoints
    assert not view._places

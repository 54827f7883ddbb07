"""Instances as xDS resources."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.xds.catalog import Catalog
from gymmesh_discovery.xds.names import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE,
    TYPES,
    group_of,
    parse_target,
)

AGENT = "gymmesh.agent.v1.AgentService"
MODEL = "gymmesh.model.v1.ModelService"


def instance(instance_id: str = "a", **fields: Any) -> pb.Instance:
    usual = {"service": AGENT, "name": "loop", "address": "127.0.0.1:1", "health": 1}
    return pb.Instance(id=instance_id, **{**usual, **fields})


def catalog_of(*instances: pb.Instance) -> Catalog:
    catalog = Catalog()
    catalog.replace(instances)
    catalog.commit()
    return catalog


def assignment(catalog: Catalog, group: str = "agent.loop") -> Any:
    found = catalog.find(ENDPOINTS, group)
    assert found is not None
    return endpoint_pb2.ClusterLoadAssignment.FromString(found.body.value)


def addresses(catalog: Catalog, group: str = "agent.loop") -> list[tuple[str, int, int]]:
    """Address, port and health of all endpoints, in their order."""
    sockets = []
    for locality in assignment(catalog, group).endpoints:
        for one in locality.lb_endpoints:
            socket = one.endpoint.address.socket_address
            sockets.append((socket.address, socket.port_value, one.health_status))
    return sockets


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (pb.HEALTH_SERVING, health_check_pb2.HEALTHY),
        (pb.HEALTH_DRAINING, health_check_pb2.DRAINING),
        (pb.HEALTH_NOT_SERVING, health_check_pb2.UNHEALTHY),
        (pb.HEALTH_UNSPECIFIED, health_check_pb2.UNHEALTHY),
    ],
)
def test_health(health: Any, expected: int) -> None:
    assert addresses(catalog_of(instance(health=health))) == [("127.0.0.1", 1, expected)]


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("10.0.0.7:9401", "10.0.0.7", 9401),
        ("ipv4:10.0.0.7:9401", "10.0.0.7", 9401),
        ("[::1]:9401", "::1", 9401),
        ("[2001:DB8:0:0::1]:65535", "2001:db8::1", 65535),
        ("ipv6:[::1]:9401", "::1", 9401),
    ],
)
def test_addresses(address: str, host: str, port: int) -> None:
    assert addresses(catalog_of(instance(address=address))) == [(host, port, 1)]


@pytest.mark.parametrize(
    "address",
    [
        "unix:/run/gym/math.sock", "unix-abstract:math", "math.example:9401", "localhost:9401",
        "dns:///math:9401", "xds:///agent.loop", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",
        "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:٣", "::1:9401", "[127.0.0.1]:9401",
        "[fe80::1%eth0]:9401", "0.0.0.0:9401", "[::]:9401", "224.0.0.1:9401", "(inside)", "",
        "01.2.3.4:5", "127.1:9401", "direct:a", "\x00:1",
    ],
)  # fmt: skip
def test_an_address_that_clients_refuse_is_left_out(address: str) -> None:
    catalog = catalog_of(instance(address=address), instance("b", address="127.0.0.1:2"))
    assert addresses(catalog) == [("127.0.0.1", 2, 1)]
    assert list(catalog.problems) == ["a"]
    catalog.put(instance())
    catalog.commit()
    assert not catalog.problems
    assert len(addresses(catalog)) == 2


@pytest.mark.parametrize(
    ("version", "offered"),
    [("", True), ("1.0", True), ("1.99", True), ("2.0", False), ("0.1", False), ("banana", False)],
)
def test_contract_versions(version: str, offered: bool) -> None:
    catalog = catalog_of(instance(contract_version=version))
    assert bool(addresses(catalog)) is offered
    assert bool(catalog.problems) is not offered


def test_an_address_stands_once_and_as_one_that_takes_calls() -> None:
    catalog = catalog_of(
        instance("a", health=pb.HEALTH_DRAINING), instance("b"), instance("c", health=2)
    )
    assert addresses(catalog) == [("127.0.0.1", 1, health_check_pb2.HEALTHY)]


def test_weights_and_places() -> None:
    here = pb.Locality(region="r", zone="z", host="h")
    catalog = catalog_of(
        instance("a", locality=here),
        instance("b", locality=here, address="127.0.0.1:2", weight=3),
        instance("c", locality=here, address="127.0.0.1:3", weight=3),
        instance("d", locality=here, address="127.0.0.1:4", weight=3, health=2),
        instance("e", address="127.0.0.1:5", weight=2**32 - 1),
    )
    places = {
        (one.locality.region, one.locality.zone, one.locality.sub_zone): (
            one.load_balancing_weight.value,
            [endpoint.load_balancing_weight.value for endpoint in one.lb_endpoints],
        )
        for one in assignment(catalog).endpoints
    }
    assert places == {
        ("r", "z", "h"): (1, [1]),
        ("r", "z", "h;weight=3"): (6, [3, 3, 3]),
        ("", "", ";weight=1000"): (1000, [1000]),
    }


def test_places_are_distinct_whatever_hosts_are_called() -> None:
    odd = pb.Locality(host="h;weight=3")
    plain = pb.Locality(host="h")
    catalog = catalog_of(
        instance("a", locality=odd), instance("b", locality=plain, weight=3, address="127.0.0.1:2")
    )
    assert len(assignment(catalog).endpoints) == 1


def test_listener_route_and_cluster_of_a_target() -> None:
    catalog = catalog_of()
    for name in ("agent.loop", "affinity.agent.loop", "model.a.b/c d", "resource.数学"):
        found = {kind: catalog.find(kind, name) for kind in (LISTENER, ROUTE, CLUSTER)}
        bodies = {kind: one.body.value for kind, one in found.items() if one is not None}
        listener = listener_pb2.Listener.FromString(bodies[LISTENER])
        manager = manager_pb2.HttpConnectionManager()
        assert listener.api_listener.api_listener.Unpack(manager)
        assert manager.rds.route_config_name == name
        [host] = route_pb2.RouteConfiguration.FromString(bodies[ROUTE]).virtual_hosts
        assert host.routes[0].route.cluster == name
        cluster = cluster_pb2.Cluster.FromString(bodies[CLUSTER])
        sticky = name.startswith("affinity.")
        assert cluster.eds_cluster_config.service_name == name.removeprefix("affinity.")
        assert (cluster.lb_policy == cluster_pb2.Cluster.RING_HASH) is sticky
        headers = [one.header.header_name for one in host.routes[0].route.hash_policy]
        assert headers == ["gymmesh-affinity"] * sticky
        # gRPC's own limit is 1,024 calls at a time.
        assert cluster.circuit_breakers.thresholds[0].max_requests.value > 1_000_000


@pytest.mark.parametrize(
    "name",
    [
        "",
        "*",
        "agent",
        "agent.",
        ".loop",
        "run.loop",
        "affinity.affinity.agent.a",
        "agent." + 600 * "a",
    ],
)
def test_names_that_cannot_exist(name: str) -> None:
    catalog = catalog_of(instance())
    for kind in (LISTENER, ROUTE, CLUSTER):
        assert catalog.find(kind, name) is None


def test_a_group_without_instances_has_no_endpoints() -> None:
    catalog = catalog_of(instance(), instance("x", service="acme.v1.Other"))
    assert not assignment(catalog, "agent.nobody").endpoints
    assert set(catalog.names(LISTENER)) == {"agent.loop", "affinity.agent.loop"}
    catalog.remove("a")
    assert addresses(catalog)  # until it is committed
    assert catalog.commit()
    assert not addresses(catalog)
    assert not catalog.names(LISTENER)


PORTS = st.integers(1, 4)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from([AGENT, MODEL, "x"]), PORTS,
        st.sampled_from([1, 2, 3]),
        st.sampled_from(["127.0.0.1", "nowhere"]), st.booleans(), st.booleans(),
    ),
    max_size=30,
)  # fmt: skip


@given(CHANGES)
def test_changes_one_by_one_are_the_snapshot(changes: list[tuple[Any, ...]]) -> None:
    live: dict[str, pb.Instance] = {}
    stepwise = Catalog()
    for instance_id, service, port, health, host, gone, commit in changes:
        one = instance(instance_id, service=service, address=f"{host}:{port}", health=health)
        if gone:
            live.pop(instance_id, None)
            stepwise.remove(instance_id)
        else:
            live[instance_id] = one
            stepwise.put(one)
        if commit:
            before = stepwise.version
            assert stepwise.commit() is (stepwise.version == before + 1)
            assert not stepwise.commit()
    stepwise.commit()
    fresh = catalog_of(*live.values())
    assert stepwise.problems == fresh.problems
    for kind in TYPES:
        assert sorted(stepwise.names(kind)) == sorted(fresh.names(kind))
    for group in ("agent.loop", "model.loop"):
        assert stepwise.find(ENDPOINTS, group) == fresh.find(ENDPOINTS, group)


@pytest.mark.parametrize("noun", ["agent", "model", "resource", "sandbox"])
def test_each_kind_that_is_called_by_name_has_a_target(noun: str) -> None:
    service = f"gymmesh.{noun}.v1.{noun.capitalize()}Service"
    assert group_of(service, "one") == f"{noun}.one"
    target = parse_target(f"affinity.{noun}.one")
    assert target is not None
    assert target.group == f"{noun}.one"

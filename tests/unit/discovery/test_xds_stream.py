"""A client's stream as a state machine: whatever clients and the registry do in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.xds.catalog import Catalog
from gymmesh_discovery.xds.names import CLUSTER, ENDPOINTS, LISTENER, ROUTE, TYPES, WHOLE
from gymmesh_discovery.xds.stream import ClientStream, Push, TooManyNamesError

AGENT = "gymmesh.agent.v1.AgentService"
NAMES = st.frozensets(st.sampled_from(["agent.a", "agent.b", "affinity.agent.a", "bad", "*"]))
TYPE = st.sampled_from(TYPES)


def instance(name: str, port: int = 1) -> pb.Instance:
    return pb.Instance(
        id=f"{name}-{port}",
        service=AGENT,
        name=name,
        address=f"127.0.0.1:{port}",
        health=pb.HEALTH_SERVING,
    )


class Client:
    """What a client of either protocol does with what it is sent."""

    def __init__(self, catalog: Catalog, *, delta: bool) -> None:
        self.catalog = catalog
        self.delta = delta
        self.stream = ClientStream(delta=delta)
        self.names: dict[str, set[str]] = {}
        self.said: dict[str, frozenset[str]] = {}  # names as its requests have them
        self.named: set[str] = set()  # the types of which it has named something
        self.has: dict[str, dict[str, str]] = {}  # received last, by type and name
        self.arriving: list[Push] = []
        self.versions: list[int] = []

    def subscribe(self, type_url: str, names: frozenset[str]) -> None:
        first = type_url not in self.names
        before = self.names.get(type_url, set())
        self.names[type_url] = set(names)
        self.said[type_url] = names
        has = self.has.setdefault(type_url, {})
        if self.delta:
            if first and not names and type_url in WHOLE:
                self.names[type_url] = {"*"}
            self.stream.receive_delta(type_url, names - before, before - names, {})
        else:
            self.stream.receive_whole(type_url, "", names)
            if names:
                self.named.add(type_url)
            elif type_url in WHOLE and type_url not in self.named:
                self.names[type_url] = {"*"}
        for name in [name for name in has if not self.wants(type_url, name)]:
            del has[name]

    def wants(self, type_url: str, name: str) -> bool:
        names = self.names[type_url]
        return name in names or (type_url in WHOLE and "*" in names)

    def flush(self) -> None:
        self.arriving += self.stream.due(self.catalog)

    def receive(self) -> None:
        push = self.arriving.pop(0)
        self.versions.append(int(push.version))
        has = self.has[push.type_url]
        arrived = {
            one.name: one.version for one in push.resources if self.wants(push.type_url, one.name)
        }
        if not self.delta and push.type_url in WHOLE:
            has.clear()
        has.update(arrived)
        for name in push.removed:
            has.pop(name, None)
        if not self.delta:  # ACK and NACK alike say the names once more
            self.stream.receive_whole(push.type_url, push.version, self.said[push.type_url])
        else:
            self.stream.receive_delta(push.type_url, (), (), {}, push.nonce)

    def settle(self) -> None:
        for _ in range(50):
            self.flush()
            if not self.arriving:
                return
            while self.arriving:
                self.receive()
        raise AssertionError("it is sent things for ever")

    def check(self) -> None:
        for type_url, names in self.names.items():
            wanted = names - {"*"}
            if "*" in names:
                wanted |= set(self.catalog.names(type_url))
            found = {name: self.catalog.find(type_url, name) for name in wanted}
            expected = {name: one.version for name, one in found.items() if one is not None}
            assert self.has[type_url] == expected
        assert self.versions == sorted(self.versions)


class Streams(RuleBasedStateMachine):
    """A client of each protocol beside a registry that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.catalog = Catalog()
        self.clients = [Client(self.catalog, delta=delta) for delta in (False, True)]

    @rule(name=st.sampled_from("ab"), port=st.integers(1, 2), gone=st.booleans())
    def change(self, name: str, port: int, gone: bool) -> None:
        if gone:
            self.catalog.remove(instance(name, port).id)
        else:
            self.catalog.put(instance(name, port))
        self.catalog.commit()

    @rule(which=st.integers(0, 1), type_url=TYPE, names=NAMES)
    def subscribe(self, which: int, type_url: str, names: frozenset[str]) -> None:
        self.clients[which].subscribe(type_url, names)

    @rule(which=st.integers(0, 1))
    def flush(self, which: int) -> None:
        self.clients[which].flush()

    @rule(which=st.integers(0, 1))
    def receive(self, which: int) -> None:
        if self.clients[which].arriving:
            self.clients[which].receive()

    @rule(which=st.integers(0, 1))
    def catch_up(self, which: int) -> None:
        self.clients[which].settle()
        self.clients[which].check()

    @invariant()
    def bounded(self) -> None:
        for one in self.clients:
            for known in one.stream._types.values():
                assert len(known.sent) <= 16
                assert len(known.given_up) <= 16

    def teardown(self) -> None:
        for one in self.clients:
            one.settle()
            one.check()
            assert one.stream.due(self.catalog) == []


TestStreams: Any = Streams.TestCase
TestStreams.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.replace([instance("a"), instance("b", 2)])
    catalog.commit()
    return catalog


def sent(pushes: list[Push]) -> list[tuple[str, list[str], list[str]]]:
    """The types without their package, the names sent and the names removed."""
    return [
        (push.type_url.rpartition(".")[2], [one.name for one in push.resources], push.removed)
        for push in pushes
    ]


def test_state_of_the_world(catalog: Catalog) -> None:
    stream = ClientStream(delta=False)
    stream.receive_whole(LISTENER, "", ["agent.a"])
    [push] = stream.due(catalog)
    assert sent([push]) == [("Listener", ["agent.a"], [])]
    assert stream.due(catalog) == []
    stream.receive_whole(LISTENER, push.version, ["agent.a"])  # ACK
    assert stream.due(catalog) == []
    # All that is subscribed to, although one of them is there already.
    stream.receive_whole(LISTENER, push.version, ["agent.a", "agent.b"])
    [again] = stream.due(catalog)
    assert sent([again]) == [("Listener", ["agent.a", "agent.b"], [])]
    assert again.nonce != push.nonce


def test_only_endpoints_that_changed_are_sent(catalog: Catalog) -> None:
    stream = ClientStream(delta=False)
    stream.receive_whole(ENDPOINTS, "", ["agent.a", "agent.b", "agent.nobody"])
    assert sent(stream.due(catalog)) == [
        ("ClusterLoadAssignment", ["agent.a", "agent.b", "agent.nobody"], [])
    ]
    catalog.put(instance("b", 3))
    catalog.commit()
    assert sent(stream.due(catalog)) == [("ClusterLoadAssignment", ["agent.b"], [])]


def test_what_was_refused_is_sent_again_when_it_changed(catalog: Catalog) -> None:
    stream = ClientStream(delta=False)
    stream.receive_whole(ENDPOINTS, "", ["agent.a"])
    [push] = stream.due(catalog)
    stream.receive_whole(ENDPOINTS, "", ["agent.a"])  # NACK: the version stays the old one
    assert stream.due(catalog) == []
    catalog.put(instance("a", 9))
    catalog.commit()
    [next_one] = stream.due(catalog)
    assert int(next_one.version) > int(push.version)


def test_a_name_given_up_and_taken_back_is_sent_again(catalog: Catalog) -> None:
    stream = ClientStream(delta=False)
    stream.receive_whole(ENDPOINTS, "", ["agent.a", "agent.b"])
    stream.due(catalog)
    stream.receive_whole(ENDPOINTS, "", ["agent.b"])
    stream.receive_whole(ENDPOINTS, "", ["agent.a", "agent.b"])
    assert sent(stream.due(catalog)) == [("ClusterLoadAssignment", ["agent.a"], [])]


def test_a_listener_that_cannot_be_is_absent_and_not_waited_for(catalog: Catalog) -> None:
    whole, delta = ClientStream(delta=False), ClientStream(delta=True)
    whole.receive_whole(LISTENER, "", ["nonsense"])
    delta.receive_delta(LISTENER, ["nonsense"], [], {})
    assert sent(whole.due(catalog)) == [("Listener", [], [])]
    assert sent(delta.due(catalog)) == [("Listener", [], ["nonsense"])]
    assert whole.due(catalog) == delta.due(catalog) == []


@pytest.mark.parametrize("names", [[], ["*"]])
def test_a_wildcard_is_all_that_is_registered(catalog: Catalog, names: list[str]) -> None:
    whole, delta = ClientStream(delta=False), ClientStream(delta=True)
    whole.receive_whole(CLUSTER, "", names)
    delta.receive_delta(CLUSTER, names, [], {})
    everything = ["affinity.agent.a", "affinity.agent.b", "agent.a", "agent.b"]
    assert sent(whole.due(catalog)) == sent(delta.due(catalog)) == [("Cluster", everything, [])]
    catalog.remove(instance("b", 2).id)
    catalog.commit()
    assert sent(whole.due(catalog)) == [("Cluster", ["affinity.agent.a", "agent.a"], [])]
    assert sent(delta.due(catalog)) == [("Cluster", [], ["affinity.agent.b", "agent.b"])]


def test_who_has_named_something_and_names_nothing_wants_nothing(catalog: Catalog) -> None:
    stream = ClientStream(delta=False)
    stream.receive_whole(CLUSTER, "", ["agent.a"])
    stream.due(catalog)
    stream.receive_whole(CLUSTER, "", [])
    assert stream.due(catalog) == []


@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_may_arrive_after_it_was_given_up_is_taken_back(
    catalog: Catalog, acknowledged: bool
) -> None:
    stream = ClientStream(delta=True)
    stream.receive_delta(CLUSTER, ["agent.a", "agent.c"], [], {})
    [push] = stream.due(catalog)
    assert sent([push]) == [("Cluster", ["agent.a", "agent.c"], [])]
    if acknowledged:
        stream.receive_delta(CLUSTER, [], [], {}, push.nonce)
    stream.receive_delta(CLUSTER, [], ["agent.a", "agent.c"], {})
    stream.receive_delta(CLUSTER, ["*"], [], {})
    # Nobody has registered agent.c: everything, which the client wants now, is without it.
    everything = ["affinity.agent.a", "affinity.agent.b", "agent.a", "agent.b"]
    removed = [] if acknowledged else ["agent.c"]
    assert sent(stream.due(catalog)) == [("Cluster", everything, removed)]


def test_delta_sends_what_a_client_that_comes_back_lacks(catalog: Catalog) -> None:
    known = catalog.find(ENDPOINTS, "agent.a")
    assert known is not None
    has = {"agent.a": known.version, "agent.b": "old"}
    stream = ClientStream(delta=True)
    stream.receive_delta(ENDPOINTS, ["agent.a", "agent.b"], [], has)
    assert sent(stream.due(catalog)) == [("ClusterLoadAssignment", ["agent.b"], [])]


def test_a_registry_that_has_just_started_takes_nothing_from_anybody(catalog: Catalog) -> None:
    catalog.settled = False
    new, old, delta = ClientStream(delta=False), ClientStream(delta=False), ClientStream(delta=True)
    for stream, version in ((new, ""), (old, "7")):
        stream.receive_whole(CLUSTER, version, ["agent.a"])
        stream.receive_whole(ENDPOINTS, version, ["agent.a", "agent.nobody"])
    delta.receive_delta(ENDPOINTS, ["agent.a"], [], {"agent.a": "old"})
    # Who has nothing yet gets what there is; who has a cache goes on with it.
    assert sent(new.due(catalog)) == [
        ("Cluster", ["agent.a"], []), ("ClusterLoadAssignment", ["agent.a"], []),
    ]  # fmt: skip
    assert sent(old.due(catalog)) == [("Cluster", ["agent.a"], [])]
    assert delta.due(catalog) == []
    catalog.settled = True
    assert sent(new.due(catalog)) == [("ClusterLoadAssignment", ["agent.nobody"], [])]
    assert sent(old.due(catalog)) == [("ClusterLoadAssignment", ["agent.a", "agent.nobody"], [])]
    assert sent(delta.due(catalog)) == [("ClusterLoadAssignment", ["agent.a"], [])]


def test_unknown_types_are_ignored(catalog: Catalog) -> None:
    whole, delta = ClientStream(delta=False), ClientStream(delta=True)
    for number in range(100):
        whole.receive_whole(f"type.googleapis.com/acme.{number}", "", ["x"])
        delta.receive_delta(f"type.googleapis.com/acme.{number}", ["x"], [], {})
    assert whole.due(catalog) == delta.due(catalog) == []
    assert not whole._types
    assert not delta._types


def test_subscriptions_are_bounded() -> None:
    many = [f"agent.{number}" for number in range(10_001)]
    with pytest.raises(TooManyNamesError):
        ClientStream(delta=False).receive_whole(ROUTE, "", many)
    with pytest.raises(TooManyNamesError):
        ClientStream(delta=True).receive_delta(ROUTE, many, [], {})
    with pytest.raises(TooManyNamesError):
        ClientStream(delta=True).receive_delta(ROUTE, [], [], dict.fromkeys(many, "1"))
    with pytest.raises(TooManyNamesError):
        ClientStream(delta=False).receive_whole(ROUTE, "", ["a" * 1025])
    stream = ClientStream(delta=True)
    stream.receive_delta(ROUTE, many[:6000], [], {})
    with pytest.raises(TooManyNamesError):
        stream.receive_delta(ROUTE, ["x" + name for name in many[:6000]], [], {})

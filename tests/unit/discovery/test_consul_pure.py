"""Consul's registry without Consul: names, entries, blocking queries and the view."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.backends.consul.entry import (
    host_and_port,
    lease_mark,
    read_entry,
    read_service_name,
    registration,
    service_name,
    unfit_meta,
)
from gymmesh_discovery.backends.consul.query import BadIndexError, BlockingQuery, read_index
from gymmesh_discovery.backends.consul.registry_view import ConsulView
from gymmesh_discovery.backends.entry import EntryError
from gymmesh_discovery.config import ConsulConfig, read_token, split_address
from gymmesh_runtime.config import ConfigError, Secret

MODEL = "gymmesh.model.v1.ModelService"
AGENT = "gymmesh.agent.v1.AgentService"

printable = st.text(min_size=1, max_size=40).filter(str.isprintable)
short = printable.filter(lambda text: len(text.encode()) <= 512)
meta_keys = st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True)
hosts = st.sampled_from(["127.0.0.1", "10.0.0.7", "box-3.lab", "[::1]", "[2001:db8::2]"])
addresses = st.one_of(
    st.builds(lambda host, port: f"{host}:{port}", hosts, st.integers(1, 65_535)),
    st.just("unix:/run/gym/math.sock"),
)
instances = st.builds(
    lambda **fields: pb.Instance(health=pb.HEALTH_SERVING, **fields),
    id=short,
    service=st.one_of(st.sampled_from([MODEL, AGENT]), short),
    name=short,
    address=addresses,
    contract_version=st.sampled_from(["", "1.0", "1.7"]),
    meta=st.dictionaries(meta_keys, short, max_size=5),
    weight=st.integers(1, 65_535),
    metrics_address=st.sampled_from(["", "127.0.0.1:9"]),
)


# ---- names


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (AGENT, "math", "gymmesh-agent-math"),
        (MODEL, "policy-2", "gymmesh-model-policy-2"),
        (AGENT, "tool_loop", "gymmesh-agent-tool-x5floop"),
        (AGENT, "a-x5f", "gymmesh-agent-a-x2dx5f"),
        ("acme.v1.Foo", "Bar", "gymmesh-x61636d652e76312e466f6f--x42ar"),
    ],
)
def test_names_in_consul(kind: str, name: str, expected: str) -> None:
    assert service_name("gymmesh", kind, name) == expected
    assert read_service_name("gymmesh", expected) == (kind, name)


@given(st.one_of(st.sampled_from([MODEL, AGENT]), printable), printable)
def test_a_name_is_read_back(kind: str, name: str) -> None:
    text = service_name("gymmesh", kind, name)
    assert read_service_name("gymmesh", text) == (kind, name)
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert read_service_name("other", text) is None


@given(st.text(alphabet="gymesh-x0123456789abcdef", max_size=30).map(lambda t: "gymmesh-" + t))
def test_a_name_of_somebody_else_is_none_of_ours(text: str) -> None:
    found = read_service_name("gymmesh", text)
    assert found is None or service_name("gymmesh", *found) == text


# ---- entries


def as_listed(body: dict[str, Any], status: str = "passing") -> dict[str, Any]:
    """What Consul's health endpoint lists after a registration."""
    service = {
        "ID": body["ID"],
        "Service": body["Name"],
        "Meta": body["Meta"],
        "Weights": body["Weights"],
        "Address": body.get("Address", ""),
        "Port": body.get("Port", 0),
    }
    checks = [
        {"CheckID": "serfHealth", "Status": "passing"},
        {"CheckID": body["Check"]["CheckID"], "Status": status},
    ]
    return {"Node": {"Address": "192.0.2.1"}, "Service": service, "Checks": checks}


@given(instances)
def test_an_entry_is_read_back(instance: pb.Instance) -> None:
    body = registration(instance, "gymmesh", "lease", {"TTL": "15s"})
    assert read_entry(as_listed(body), "gymmesh") == instance
    assert body["Meta"]["gymmesh-lease"] == lease_mark("lease") != "lease"
    assert all(len(value.encode()) <= 512 for value in body["Meta"].values())


def test_locality_and_a_node_address() -> None:
    instance = pb.Instance(
        id="a", service=MODEL, name="policy", address="10.0.0.1:7", weight=1,
        locality=pb.Locality(region="eu", host="box"), health=pb.HEALTH_SERVING,
    )  # fmt: skip
    listed = as_listed(registration(instance, "gymmesh", "lease", {}))
    assert read_entry(listed, "gymmesh") == instance
    listed["Service"]["Address"] = ""  # as a service that others registered at its node
    assert read_entry(listed, "gymmesh").address == "192.0.2.1:7"


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ({"a": "passing"}, pb.HEALTH_SERVING),
        ({"a": "warning"}, pb.HEALTH_SERVING),
        ({}, pb.HEALTH_SERVING),
        ({"a": "passing", "serfHealth": "critical"}, pb.HEALTH_NOT_SERVING),
        ({"a": "critical", "_service_maintenance:a": "critical"}, pb.HEALTH_DRAINING),
        ({"a": "passing", "_node_maintenance": "critical"}, pb.HEALTH_DRAINING),
        ({"a": "a status of the future"}, pb.HEALTH_NOT_SERVING),
    ],
)
def test_health(statuses: dict[str, str], expected: int) -> None:
    instance = pb.Instance(id="a", service=MODEL, name="policy", address="127.0.0.1:7")
    listed = as_listed(registration(instance, "gymmesh", "lease", {}))
    listed["Checks"] = [{"CheckID": key, "Status": one} for key, one in statuses.items()]
    assert read_entry(listed, "gymmesh").health == expected


def test_meta_that_consul_refuses_is_left_out() -> None:
    meta = {
        "fits": "yes", "a key": "1", "long": "x" * 513, "consul-x": "1", "gymmesh-name": "me",
    }  # fmt: skip
    assert unfit_meta(meta) == ["a key", "consul-x", "gymmesh-name", "long"]
    many = {f"key{number:02}": "" for number in range(64)}
    assert len(many) - len(unfit_meta(many)) == 55
    instance = pb.Instance(id="a", service=MODEL, name="policy", address="h:7", meta=many)
    assert len(registration(instance, "gymmesh", "lease", {})["Meta"]) <= 64


def spoil(**changes: Any) -> Any:
    instance = pb.Instance(
        id="a", service=MODEL, name="policy", address="127.0.0.1:7", contract_version="1.0"
    )
    listed = as_listed(registration(instance, "gymmesh", "lease", {}))
    listed["Service"] |= changes
    return listed


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        (spoil(Meta={"gymmesh-contract": "2.0"}), "contract version '2.0'"),
        (spoil(Meta={"gymmesh-contract": "banana"}), "contract version 'banana'"),
        (spoil(Meta=[1]), "Meta"),
        (spoil(Meta={"a": 1}), "Meta"),
        (spoil(ID=""), "no id"),
        (spoil(ID="a\x07"), "control"),
        (spoil(ID="a" * 600), "512"),
        (spoil(ID="a\ud800"), "ID has an unpaired surrogate"),
        (spoil(Address="h\udfff"), "Address has an unpaired surrogate"),
        (spoil(Meta={"gymmesh-zone": "\ud83d"}), "Meta has an unpaired surrogate"),
        (spoil(Meta={"\ud83d": "a"}), "Meta has an unpaired surrogate"),
        (spoil(Service="postgres"), "not the name of a mesh service"),
        (spoil(Port="7"), "Port"),
        (spoil(Port=0), "no address"),
        (spoil(Port=True), "Port"),
        (spoil(Weights={"Passing": -1}), "weight"),
        ({"Service": None}, "Service"),
        ([], "Service"),
        (None, "Service"),
        (spoil() | {"Checks": None}, "Checks"),
        (spoil() | {"Checks": [{"CheckID": 1}]}, "CheckID"),
    ],
)
def test_a_damaged_entry_is_refused_with_a_reason(listed: Any, problem: str) -> None:
    with pytest.raises(EntryError, match=problem):
        read_entry(listed, "gymmesh")


any_text = st.text(st.characters(exclude_categories=()), max_size=8)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), any_text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner),
    max_leaves=8,
)


@given(st.sampled_from(["ID", "Service", "Meta", "Weights", "Address", "Port"]), json_values)
def test_no_entry_does_worse_than_be_refused(key: str, value: Any) -> None:
    try:
        instance = read_entry(spoil(**{key: value}), "gymmesh")
    except EntryError:
        return
    assert instance.id
    assert instance.name
    assert instance.address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("::1:80", None),
        ("unix:/a", None),
        ("direct:a", None),
        ("host:99999", None),
    ],
)
def test_addresses(address: str, expected: tuple[str, int] | None) -> None:
    assert host_and_port(address) == expected


# ---- blocking queries


@pytest.mark.parametrize("text", [None, "", "-1", "1.5", "abc", "९", "9" * 30])
def test_an_index_that_is_none(text: str | None) -> None:
    with pytest.raises(BadIndexError):
        read_index(text)


events = st.one_of(st.just("fails"), st.integers(0, 50))


@given(st.lists(events, max_size=40), st.floats(0, 0.99))
def test_the_index_rules(history: list[Any], draw: float) -> None:
    query = BlockingQuery(wait_s=10.0)
    for event in history:
        sent = query.index
        if event == "fails":
            query.failed()
            assert query.index == 0
            assert 0 < query.pause_s(0.0, draw) <= 1.0
            continue
        taken = query.answered(event)
        assert taken == (event >= sent)
        assert query.index == (event if taken else 0)
        assert query.failures == 0
        # The next read waits for news, or is without index, or comes after a pause.
        if not query.index and event == 0:
            assert query.pause_s(0.0, draw) >= 0.5
        assert bool(query.params()) == (query.index > 0)
        assert query.timeout_s() > (10.0 if query.index else 0.0)


def test_what_is_asked_next() -> None:
    query = BlockingQuery(wait_s=10.0)
    assert query.params() == []
    assert query.answered(7)
    assert query.params() == [("index", "7"), ("wait", "10000ms")]
    assert query.pause_s(10.0, 0.5) == 0.0
    assert query.answered(7)  # the wait was over, without news
    assert query.pause_s(10.0, 0.5) == 0.0
    assert query.answered(7)
    assert query.pause_s(0.01, 0.5) >= 0.5  # at once and without news: not in a hurry
    assert not query.answered(3)
    assert query.params() == []
    assert query.answered(3)
    pauses = []
    for _ in range(20):
        query.failed()
        pauses.append(query.pause_s(0.0, 0.99))
    assert pauses == sorted(pauses)
    assert pauses[-1] <= 1.0


# ---- the view


def one(instance_id: str, name: str = "math", **more: Any) -> pb.Instance:
    fields: dict[str, Any] = {"address": "127.0.0.1:7", "health": pb.HEALTH_SERVING, **more}
    return pb.Instance(id=instance_id, service=AGENT, name=name, **fields)


def ids(view: ConsulView) -> list[str]:
    return [instance.id for instance in view.instances()]


def test_what_consul_forgot_stays_for_a_grace() -> None:
    view = ConsulView(grace_s=5.0)
    view.take("agent-math", [one("a"), one("b")], 0.0)
    view.interrupted(10.0)
    assert view.names([], 10.1) == []
    assert view.take("agent-math", [], 10.2) == []
    assert ids(view) == ["a", "b"]
    assert view.take("agent-math", [one("a")], 11.0) == []  # it registered anew
    assert view.expire(14.0) == []
    assert [change.instance.id for change in view.expire(15.0)] == ["b"]
    assert ids(view) == ["a"]
    assert [change.removed for change in view.names([], 16.0)] == [True]


def test_an_id_on_two_nodes_is_the_one_that_serves() -> None:
    dead, live = one("a", health=pb.HEALTH_NOT_SERVING), one("a", address="127.0.0.1:8")
    for answer in ([dead, live], [live, dead]):
        view = ConsulView(grace_s=5.0)
        (change,) = view.take("agent-math", answer, 0.0)
        assert change.instance == live
        assert view.take("agent-math", answer, 1.0) == []
        assert view.take("agent-other", [one("a", "other")], 1.0) == []


listed = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(["x", "y"]), listed),
        st.tuples(st.just("names"), st.lists(st.sampled_from(["x", "y"]), unique=True)),
        st.tuples(st.just("interrupted")),
        st.tuples(st.just("expire")),
    ),
    max_size=30,
)


@given(steps)
def test_the_changes_make_the_view(history: list[Any]) -> None:
    """Who applies the changes in their order sees what the view holds, in every history."""
    view, seen, version, now = ConsulView(grace_s=2.5), dict[str, pb.Instance](), 0, 0.0
    for step in history:
        now += 1.0
        if step[0] == "take":
            found = [one(f"{step[1]}{name}", step[1]) for name in step[2]]
            changes = view.take(step[1], found, now)
        elif step[0] == "names":
            changes = view.names(step[1], now)
        elif step[0] == "expire":
            changes = view.expire(now)
        else:
            changes = []
            view.interrupted(now)
        for change in changes:
            version += 1
            assert change.version == version
            assert change.before == seen.get(change.instance.id)
            if change.removed:
                del seen[change.instance.id]
            else:
                seen[change.instance.id] = change.instance
        assert view.version == version
        assert [seen[key] for key in sorted(seen)] == view.instances()
        if step[0] == "take":
            assert {instance.id for instance in found} <= set(ids(view))
    view.expire(now + 10.0)
    view.names([], now + 10.0)
    assert ids(view) == []


# ---- configuration


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:8500", ("http", "127.0.0.1", 8500)),
        ("https://consul.lab:8501", ("https", "consul.lab", 8501)),
        ("[::1]:8500", ("http", "::1", 8500)),
    ],
)
def test_addresses_of_consul(address: str, expected: tuple[str, str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize(
    "address", ["", "consul", "ftp://a:1", "a:x", "a:1/path", "user:hunter2@a:1", "a:99999", "a:0"]
)
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT") as raised:
        ConsulConfig(address=address)
    assert "hunter2" not in str(raised.value)


def test_the_token_is_from_a_file_or_the_environment(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    config = ConsulConfig(token_file=str(file))
    env = {"CONSUL_HTTP_TOKEN": "from-the-environment", "OTHER": "x"}
    token = read_token(config, env)
    assert token == "from-a-file"
    assert isinstance(token, Secret)
    assert "from" not in repr(token)
    assert read_token(ConsulConfig(), env) == "from-the-environment"
    assert read_token(ConsulConfig(token_env="OTHER"), env) == "x"
    assert read_token(ConsulConfig(), {}) is None
    for text in ("", "two words"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="contains no token"):
            read_token(config, env)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(ConsulConfig(token_file=str(tmp_path / "none")), env)

"""ConsulRegistry against a Consul that answers as the test says: wrong, late, or not at all."""

from __future__ import annotations

import asyncio
import gzip
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends.consul import ConsulRegistry, client, registry, watch
from gymmesh_discovery.backends.consul.registry import check_kind
from gymmesh_discovery.config import ConsulConfig
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving import registration
from gymmesh_runtime.serving.registration import Registration
from gymmesh_runtime.telemetry.logs import Concealing
from tests.unit.runtime.probe import MODEL, until

NAME = "gymmesh-model-policy"
BOUND_S = 240.0
TOKEN = "b1gs-acl-token-of-consul"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeConsul:
    """Lists what ``listed`` holds; ``wrong`` answers every request instead, when it is set."""

    def __init__(self) -> None:
        self.index = 10
        self.listed: dict[str, dict[str, Any]] = {}  # agent's services by id
        self.status: dict[str, str] = {}
        self.wrong: Answer | None = None
        self.requests: list[web.Request] = []
        self.address = ""
        self._changed = asyncio.Event()

    def change(self, index: int | None = None) -> None:
        """Wakes the watches."""
        self.index = self.index + 1 if index is None else index
        self._changed.set()
        self._changed = asyncio.Event()

    def add(self, instance_id: str, port: int = 9, contract: str = "1.0") -> None:
        """Lists an instance that somebody else registered."""
        self.listed[instance_id] = {
            "ID": instance_id, "Service": NAME, "Address": "127.0.0.1", "Port": port,
            "Meta": {"gymmesh-contract": contract},
        }  # fmt: skip
        self.change()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.wrong is not None:
            return await self.wrong(request)
        path = request.path
        if path.startswith("/v1/agent/health/service/id/"):
            return self._health(path.rpartition("/")[2])
        if path == "/v1/agent/service/register":
            body = await request.json()
            self.listed[body["ID"]] = {**body, "Service": body["Name"]}
            self.change()
            return web.Response()
        if path.startswith("/v1/agent/service/deregister/"):
            self.listed.pop(path.rpartition("/")[2], None)
            self.change()
            return web.Response()
        if path.startswith("/v1/agent/"):
            return web.Response()
        return await self._watched(request)

    def _health(self, instance_id: str) -> web.Response:
        service = self.listed.get(instance_id)
        if service is None:
            return web.json_response({"AggregatedStatus": "critical"}, status=404)
        status = self.status.get(instance_id, "passing")
        body = {"AggregatedStatus": status, "Service": service, "Checks": []}
        return web.json_response(body, status={"passing": 200, "critical": 503}[status])

    async def _watched(self, request: web.Request) -> web.Response:
        if int(request.query.get("index", "0")) >= self.index:
            wait = float(request.query["wait"].removesuffix("ms")) / 1000
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return self.current(request)

    def current(self, request: web.Request, index: int | None = None) -> web.Response:
        """What is listed now."""
        if request.path == "/v1/catalog/services":
            body: Any = {"consul": [], **{one["Service"]: [] for one in self.listed.values()}}
        else:
            body = [{"Node": {}, "Service": one, "Checks": []} for one in self.listed.values()]
        number = self.index if index is None else index
        return web.json_response(body, headers={"X-Consul-Index": str(number)})


@pytest.fixture
async def consul() -> AsyncIterator[FakeConsul]:
    fake = FakeConsul()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.address = "{}:{}".format(*runner.addresses[0])
    yield fake
    fake.change()
    await runner.cleanup()


@asynccontextmanager
async def opened(
    consul: FakeConsul,
    *,
    view: bool = True,
    clock: Callable[[], float] = time.monotonic,
    **more: Any,
) -> AsyncIterator[ConsulRegistry]:
    """A registry that has its first view; or, where none comes, has waited a moment for it."""
    config: dict[str, Any] = {"address": consul.address, "token_env": "", "wait_s": 2.0, **more}
    backend = ConsulRegistry(ConsulConfig(**config), clock)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watch, "_FIRST_VIEW_S", BOUND_S if view else 0.2)
        await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_GRACE_S", 0.5)
    monkeypatch.setattr(registry, "_SWEEP_S", 0.05)
    # No call is given up because the machine is slow.
    monkeypatch.setattr(client, "_CALL_S", BOUND_S)
    monkeypatch.setattr(registration, "_CALL_TIMEOUT_S", BOUND_S)
    monkeypatch.setattr(registration, "_STOP_S", BOUND_S)


def ids(backend: ConsulRegistry) -> list[str]:
    return [one.id for one in backend.snapshot("", "")[1]]


def at(address: str, instance_id: str = "a", **fields: Any) -> pb.Instance:
    return pb.Instance(id=instance_id, service=MODEL, name="policy", address=address, **fields)


async def garbage(request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>not Consul</html>", headers={"X-Consul-Index": "50"})


async def fails(request: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="No cluster leader")


async def sleeps(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(0.8)
    return web.Response(status=500)


async def no_index(request: web.Request) -> web.StreamResponse:
    return web.json_response({})


async def strange_index(request: web.Request) -> web.StreamResponse:
    return web.json_response({}, headers={"X-Consul-Index": "-4"})


async def wrong_shape(request: web.Request) -> web.StreamResponse:
    body: Any = 7 if request.path == "/v1/catalog/services" else {"a": 1}
    return web.json_response(body, headers={"X-Consul-Index": "50"})


async def not_text(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"\xff\xfe\x00", headers={"X-Consul-Index": "50"})


async def deep(request: web.Request) -> web.StreamResponse:
    return web.Response(text="[" * 100_000, headers={"X-Consul-Index": "50"})


async def cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"X-Consul-Index": "50"})
    await response.prepare(request)
    while True:
        await response.write(b"[" + b" " * (1 << 20))


async def packed(request: web.Request) -> web.StreamResponse:
    body = gzip.compress(b"{" + b" " * (64 << 20) + b"}")
    headers = {"X-Consul-Index": "50", "Content-Encoding": "gzip"}
    return web.Response(body=body, headers=headers)


async def many_names(request: web.Request) -> web.StreamResponse:
    names: dict[str, list[str]] = {f"gymmesh-model-n{number}": [] for number in range(5000)}
    return web.json_response(names, headers={"X-Consul-Index": "50"})


async def elsewhere(request: web.Request) -> web.StreamResponse:
    return web.Response(status=307, headers={"Location": "http://127.0.0.1:9/v1/catalog/services"})


BAD = [
    garbage, fails, sleeps, no_index, strange_index, wrong_shape, not_text, deep, cut, endless,
    packed, elsewhere,
]  # fmt: skip


@pytest.mark.parametrize("wrong", [*BAD, many_names], ids=lambda one: str(one.__name__))
async def test_the_last_view_serves_while_consul_answers_badly(
    wrong: Answer, consul: FakeConsul, caplog: pytest.LogCaptureFixture
) -> None:
    consul.add("a")
    async with opened(consul) as backend:
        assert ids(backend) == ["a"]
        consul.wrong = wrong
        consul.change()
        await until(lambda: backend.age_s() > 0.2)
        assert ids(backend) == ["a"]
        assert "still uses the last list (instances: 1)" in caplog.text
        consul.add("b")
        consul.wrong = None
        await until(lambda: ids(backend) == ["a", "b"])
        await until(lambda: backend.age_s() == 0.0)
        assert "is reachable again" in caplog.text


@pytest.mark.parametrize("wrong", BAD[:3] + BAD[5:], ids=lambda one: str(one.__name__))
async def test_registering_with_a_consul_that_answers_badly_is_a_typed_error(
    wrong: Answer, consul: FakeConsul, monkeypatch: pytest.MonkeyPatch
) -> None:
    consul.wrong = wrong
    async with opened(consul, view=False) as backend:
        with monkeypatch.context() as patched:
            if wrong is sleeps:
                patched.setattr(client, "_CALL_S", 0.5)
            with pytest.raises(MeshError) as raised:
                await backend.register(at("127.0.0.1:9"), 15, "")
        assert raised.value.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE
        assert consul.address in raised.value.message
        consul.wrong = None
        lease, _ = await backend.register(at("127.0.0.1:9"), 15, "")
        await until(lambda: ids(backend) == ["a"])
        await backend.deregister(lease)
        await until(lambda: ids(backend) == [])


async def test_the_view_opens_while_consul_is_away_and_fills_later(consul: FakeConsul) -> None:
    consul.wrong = fails
    consul.add("a")
    async with opened(consul, view=False) as backend:
        assert ids(backend) == []
        consul.wrong = None
        await until(lambda: ids(backend) == ["a"])


async def test_an_index_that_goes_back(consul: FakeConsul) -> None:
    """What the restarted Consul does not know stays for the grace; then its word holds."""
    consul.add("a")
    consul.add("b")
    now = 1000.0
    async with opened(consul, clock=lambda: now) as backend:
        subscription = backend.subscribe()
        del consul.listed["b"]
        consul.change(3)
        await until(lambda: backend._view._grace_until > 0.0)
        assert await subscription.next() is None  # watchers look again, and so register anew
        assert ids(backend) == ["a", "b"]

        def is_over() -> bool:
            nonlocal now
            now += 0.1
            return ids(backend) == ["a"]

        await until(is_over)
        consul.add("c")  # at index 4, which no reader waits past
        await until(lambda: ids(backend) == ["a", "c"])


async def test_an_index_that_goes_back_every_time(consul: FakeConsul) -> None:
    consul.add("a")
    indices = iter(range(1_000_000, 0, -1))

    async def back(request: web.Request) -> web.StreamResponse:
        return consul.current(request, next(indices))

    async with opened(consul) as backend:
        consul.wrong = back
        consul.add("b")
        await until(lambda: ids(backend) == ["a", "b"])
        before, since = len(consul.requests), time.monotonic()
        await asyncio.sleep(1.0)
        # No busy loop, however long that second was.
        assert len(consul.requests) - before < 150 * (time.monotonic() - since)


@pytest.mark.parametrize("index", [0, 7])
async def test_a_consul_that_never_waits_is_not_asked_in_a_loop(
    index: int, consul: FakeConsul
) -> None:
    async def at_once(request: web.Request) -> web.StreamResponse:
        return consul.current(request, index)

    consul.add("a")
    consul.wrong = at_once
    async with opened(consul) as backend:
        assert ids(backend) == ["a"]
        before, since = len(consul.requests), time.monotonic()
        await asyncio.sleep(1.0)
        assert len(consul.requests) - before < 20 * (time.monotonic() - since)


async def test_a_duplicate_id_is_refused_while_the_other_lives(consul: FakeConsul) -> None:
    consul.add("a", port=1)
    async with opened(consul) as backend:
        with pytest.raises(MeshError, match="another live instance") as raised:
            await backend.register(at("127.0.0.1:2"), 15, "")
        assert raised.value.reason == errors_pb2.ERROR_REASON_INSTANCE_EXISTS
        consul.status["a"] = "critical"
        await backend.register(at("127.0.0.1:2"), 15, "")
        consul.status["a"] = "passing"
        await backend.register(at("127.0.0.1:2"), 15, "")  # started again at its place


async def test_damaged_entries_are_left_out_with_a_line(
    consul: FakeConsul, caplog: pytest.LogCaptureFixture
) -> None:
    consul.add("good")
    consul.add("future", contract="7.1")
    consul.listed["no-port"] = {"ID": "no-port", "Service": NAME, "Address": "h"}
    half = "half\ud800"
    nested: list[Any] = []
    for _ in range(400):
        nested = [nested]
    consul.listed["half"] = {"ID": half, "Service": NAME, "Address": "h", "Port": 9}
    consul.listed["meta"] = {
        "ID": "meta", "Service": NAME, "Address": "h", "Port": 9, "Meta": {"a": half},
    }  # fmt: skip
    consul.listed["nested"] = {"ID": nested, "Service": NAME, "Address": "h", "Port": 9}
    consul.listed["what\x1b[2J"] = {"ID": "what\x1b[2J", "Service": NAME, "Port": "x"}
    consul.change()
    async with opened(consul) as backend:
        assert ids(backend) == ["good"]
        consul.change()
        await until(lambda: len(consul.requests) > 4)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("contract version '7.1'" in line for line in lines) == 1
    assert any("'no-port'" in line for line in lines)
    assert all(line.isprintable() for line in lines)


async def test_a_lease_given_back_while_another_ends_does_not_end_the_sweeper(
    consul: FakeConsul, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    async with opened(consul, clock=lambda: now[0]) as backend:
        short = [
            (await backend.register(at(f"127.0.0.1:{port}", f"short-{port}"), 15, ""))[0]
            for port in (9, 10)
        ]
        await backend.register(at("127.0.0.1:11", "long"), 30, "")
        deregister = backend.deregister

        async def both_end(lease_id: str) -> None:
            for one in {lease_id, *short}:
                await deregister(one)

        monkeypatch.setattr(backend, "deregister", both_end)
        now[0] += 20.0
        await until(lambda: not any(name.startswith("short") for name in consul.listed))
        assert list(consul.listed) == ["long"]
        now[0] += 20.0
        await until(lambda: not consul.listed)


async def test_a_lease_that_nobody_renews_ends(consul: FakeConsul) -> None:
    now = [1000.0]
    backend = ConsulRegistry(ConsulConfig(address=consul.address), lambda: now[0])
    await backend.open()
    lease, length = await backend.register(at("127.0.0.1:9"), 15, "")
    assert length == 15
    now[0] += 10.0
    assert await backend.renew(lease, pb.HEALTH_SERVING) == 15
    now[0] += 10.0
    await asyncio.sleep(0.2)
    assert "a" in consul.listed
    now[0] += 10.0
    await until(lambda: "a" not in consul.listed)
    with pytest.raises(MeshError) as raised:
        await backend.renew(lease, pb.HEALTH_SERVING)
    assert raised.value.reason == errors_pb2.ERROR_REASON_LEASE_NOT_FOUND
    await backend.close()


async def test_a_registration_outlives_a_consul_that_forgets(consul: FakeConsul) -> None:
    async with opened(consul) as backend:
        service = DiscoveryService("registry-0", backend)
        directory = PeerDirectory()
        instance = pb.Instance(id="registry-0", service=service.kind, name="registry", address="d:")
        directory.add_direct(instance, service.servicers())
        kept = Registration(directory.peer(instance), at("127.0.0.1:9"))
        consul.wrong = fails
        start = asyncio.create_task(kept.start(BOUND_S))
        await until(lambda: any("/v1/agent/" in one.path for one in consul.requests))
        consul.wrong = None
        await start
        consul.listed.clear()
        kept.renew_soon()
        await until(lambda: "a" in consul.listed)
        await kept.stop()
        assert consul.listed == {}
        consul.wrong = fails
        with pytest.raises(TimeoutError, match="No cluster leader"):
            await kept.start(3.0)
        await directory.close()


async def test_what_changes_is_registered_again_under_the_same_id(consul: FakeConsul) -> None:
    async with opened(consul) as backend:
        service = DiscoveryService("registry-0", backend)
        directory = PeerDirectory()
        own = pb.Instance(id="registry-0", service=service.kind, name="registry", address="d:")
        directory.add_direct(own, service.servicers())
        instance = at("127.0.0.1:9")
        instance.meta["weights_version"] = "1"
        kept = Registration(directory.peer(own), instance)
        await kept.start(BOUND_S)
        assert consul.listed["a"]["Meta"]["weights_version"] == "1"
        instance.meta["weights_version"] = "2"
        kept.register_soon()
        await until(lambda: consul.listed["a"]["Meta"]["weights_version"] == "2")
        await until(
            lambda: [one.meta["weights_version"] for one in backend.snapshot("", "")[1]] == ["2"]
        )
        await kept.stop()
        assert consul.listed == {}  # it was given back under its new lease
        await directory.close()


async def test_the_token_goes_to_consul_and_nowhere_else(
    consul: FakeConsul, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(request: web.Request) -> web.StreamResponse:
        return web.Response(status=403, text=f"Permission denied: {TOKEN} may not")

    monkeypatch.setenv("MESH_TOKEN", TOKEN)
    consul.add("a")
    caplog.set_level(logging.DEBUG)
    options: dict[str, Any] = {"token_env": "MESH_TOKEN", "datacenter": "lab", "namespace": "red"}
    async with opened(consul, **options, consistency="stale") as backend:
        assert ids(backend) == ["a"]
        first = consul.requests[0]
        assert first.headers["X-Consul-Token"] == TOKEN
        assert first.headers["X-Consul-Namespace"] == "red"
        assert first.query["dc"] == "lab"
        assert "stale" in first.query
        consul.wrong = refuses
        with pytest.raises(MeshError) as raised:
            await backend.register(at("127.0.0.1:9"), 15, "")
        assert raised.value.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED
        consul.change()
        await until(lambda: backend.age_s() > 0.0)
    written = [Concealing().format(record) for record in caplog.records]
    assert any("rejects" in line for line in written)
    assert not any(TOKEN in line for line in written)
    assert TOKEN not in raised.value.message


@pytest.mark.parametrize(
    ("address", "consul_at", "expected"),
    [
        ("127.0.0.1:9", "127.0.0.1:8500", "GRPC"),
        ("10.0.0.1:9", "10.0.0.2:8500", "GRPC"),
        ("127.0.0.1:9", "10.0.0.2:8500", "TTL"),
        ("unix:/run/a", "127.0.0.1:8500", "TTL"),
    ],
)
def test_how_consul_checks(address: str, consul_at: str, expected: str) -> None:
    assert check_kind(ConsulConfig(address=consul_at), at(address)) == expected.lower()


async def test_ids_with_slashes_stay_one_part_of_a_path(consul: FakeConsul) -> None:
    async with opened(consul) as backend:
        lease, _ = await backend.register(at("127.0.0.1:9", "a/b?c%"), 15, "")
        await until(lambda: ids(backend) == ["a/b?c%"])
        await backend.deregister(lease)
    assert any(one.raw_path.endswith("/a%2Fb%3Fc%25") for one in consul.requests)


def test_nothing_imports_py_consul_until_it_is_used() -> None:
    code = (
        "import sys, gymmesh_mesh, gymmesh_discovery.backends.consul\n"
        "assert 'consul' not in sys.modules\n"
        "sys.modules['consul'] = None\n"
        "from gymmesh_discovery.config import ConsulConfig\n"
        "gymmesh_discovery.backends.consul.make_client(ConsulConfig())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (
        "ConfigError: discovery by Consul needs consul: pip install 'gymmesh[consul]'"
        in done.stderr
    )

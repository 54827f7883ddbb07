"""KubernetesRegistry against an API server that answers as the test says: wrong, late, or never."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery import metrics
from gymmesh_discovery.backends import memory
from gymmesh_discovery.backends.kubernetes import (
    KubernetesRegistry,
    client,
    problem_of,
    registry,
)
from gymmesh_discovery.config import KubernetesConfig
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.kubernetes import Access
from tests.unit.discovery.fake_kubernetes import Answer, FakeKubernetes, answering
from tests.unit.discovery.kubernetes_slices import MODEL, RECORDED, endpoint, slice_of
from tests.unit.runtime.probe import until


@pytest.fixture
async def kubernetes() -> AsyncIterator[FakeKubernetes]:
    async with answering() as fake:
        yield fake


@asynccontextmanager
async def opened(
    kubernetes: FakeKubernetes,
    *,
    view: bool = True,
    clock: Callable[[], float] = time.monotonic,
    **more: Any,
) -> AsyncIterator[KubernetesRegistry]:
    """A registry that has its first view; or, where none comes, has waited a moment for it."""
    backend = KubernetesRegistry(config(kubernetes, **more), clock)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registry, "_FIRST_VIEW_S", 60.0 if view else 0.2)
        await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def config(kubernetes: FakeKubernetes, **more: Any) -> KubernetesConfig:
    return KubernetesConfig(**{"server": kubernetes.url, "namespace": "lab", **more})


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SWEEP_S", 0.05)
    monkeypatch.setattr(registry, "_LONGEST_PAUSE_S", 0.2)


def addresses(backend: KubernetesRegistry) -> dict[str, int]:
    return {one.address: one.health for one in backend.snapshot("", "")[1]}


SERVES = {"10.0.0.7:9400": pb.HEALTH_SERVING}


async def test_a_view_follows_its_watch(kubernetes: FakeKubernetes) -> None:
    kubernetes.put(slice_of(endpoint()))
    async with opened(kubernetes, selector="gymmesh.io/service,mesh=blue") as backend:
        assert addresses(backend) == SERVES
        await until(lambda: kubernetes.watches)
        listed, watched = kubernetes.requests
        assert listed.query["labelSelector"] == "gymmesh.io/service,mesh=blue"
        assert watched.query["resourceVersion"] == str(kubernetes.version)
        assert watched.query["allowWatchBookmarks"] == "true"
        watcher = backend.subscribe()
        kubernetes.put(slice_of(endpoint(ready=False, serving=True, terminating=True)))
        await until(lambda: addresses(backend) == {"10.0.0.7:9400": pb.HEALTH_DRAINING})
        change = await watcher.next()
        assert change is not None
        assert (change.version, change.instance.health) == (2, pb.HEALTH_DRAINING)
        kubernetes.put(slice_of(endpoint("10.0.0.9", "u-9"), name="second"), "ADDED")
        await until(lambda: len(addresses(backend)) == 2)
        kubernetes.delete("policy-abc12")
        await until(lambda: addresses(backend) == {"10.0.0.9:9400": pb.HEALTH_SERVING})
        await until(lambda: metrics.INSTANCES.labels(MODEL, "serving").value == 1)
        watcher.close()


async def test_a_list_comes_in_pages(kubernetes: FakeKubernetes) -> None:
    kubernetes.page = 2
    for number in range(5):
        kubernetes.put(slice_of(endpoint(f"10.0.0.{number}", f"u-{number}"), name=f"s-{number}"))
    async with opened(kubernetes) as backend:
        assert len(addresses(backend)) == 5


async def test_a_watch_goes_on_where_the_last_one_ended(kubernetes: FakeKubernetes) -> None:
    kubernetes.put(slice_of(endpoint()))
    async with opened(kubernetes) as backend:
        await until(lambda: kubernetes.watches)
        kubernetes.send("BOOKMARK", {"metadata": {"resourceVersion": "90"}})
        kubernetes.cut()
        await until(lambda: len(kubernetes.requests) == 3)
        assert kubernetes.requests[-1].query["resourceVersion"] == "90"
        assert kubernetes.lists() == 1
        assert addresses(backend) == SERVES


@pytest.mark.parametrize("how", ["event", "status"])
async def test_a_version_that_is_gone(kubernetes: FakeKubernetes, how: str) -> None:
    kubernetes.put(slice_of(endpoint()))
    (expired,) = (event["object"] for event in RECORDED["too_old"])
    async with opened(kubernetes) as backend:
        await until(lambda: kubernetes.watches)
        kubernetes.slices.clear()  # while nobody looked
        kubernetes.slices["new"] = slice_of(endpoint("10.0.0.8"), name="new")
        if how == "event":
            kubernetes.send("ERROR", expired)
        else:

            async def gone(request: web.Request) -> web.StreamResponse:
                kubernetes.wrong = None
                return web.json_response(expired, status=410)

            kubernetes.wrong = gone
            kubernetes.cut()
        await until(lambda: addresses(backend) == {"10.0.0.8:9400": pb.HEALTH_SERVING})
        assert kubernetes.lists() == 2
        assert backend.age_s() == 0.0


async def test_after_a_failure_all_is_listed_anew(kubernetes: FakeKubernetes) -> None:
    """What comes back may be behind, and would keep quiet about it: see `too_new_watch`."""
    assert RECORDED["too_new_watch"] == []
    kubernetes.put(slice_of(endpoint()))
    async with opened(kubernetes) as backend:
        await until(lambda: kubernetes.watches)
        kubernetes.wrong = fails
        kubernetes.cut()
        await until(lambda: backend.age_s() > 0.0)
        kubernetes.version = 3
        kubernetes.slices = {"old": slice_of(endpoint("10.0.0.6"), name="old")}
        kubernetes.wrong = None
        await until(lambda: addresses(backend) == {"10.0.0.6:9400": pb.HEALTH_SERVING})
        await until(lambda: kubernetes.watches)
        assert kubernetes.requests[-1].query["resourceVersion"] == "3"


async def garbage(request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>not Kubernetes</html>")


async def fails(request: web.Request) -> web.StreamResponse:
    return web.json_response({"code": 500, "message": "etcdserver: no leader"}, status=500)


async def sends_away(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/elsewhere")


async def hangs(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(0.6)
    return web.Response(status=500)


async def no_version(request: web.Request) -> web.StreamResponse:
    return web.json_response({"metadata": {}, "items": []})


async def strange_event(request: web.Request) -> web.StreamResponse:
    if "watch" not in request.query:
        return web.json_response({"metadata": {"resourceVersion": "1"}})
    return web.Response(text='{"type": "MOVED", "object": {}}\n')


async def endless_line(request: web.Request) -> web.StreamResponse:
    if "watch" not in request.query:
        return web.json_response({"metadata": {"resourceVersion": "1"}})
    return web.Response(text="x" * 5000)


async def endless_body(request: web.Request) -> web.StreamResponse:
    return web.Response(text="x" * 50_000)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (garbage, "does not answer like Kubernetes"),
        (fails, "answers 500: etcdserver: no leader"),
        (sends_away, "answers 302"),
        (hangs, "did not answer in time"),
        (no_version, "the list of EndpointSlices has no version"),
        (strange_event, "it sends an event 'MOVED'"),
        (endless_line, "an event exceeds 4000 bytes"),
        (endless_body, "the answer exceeds 40000 bytes"),
    ],
)
async def test_an_answer_that_makes_no_sense(
    kubernetes: FakeKubernetes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wrong: Answer,
    said: str,
) -> None:
    """One clear line; the last view serves, its age grows, and it recovers by itself."""
    monkeypatch.setattr(client, "_MAX_EVENT_BYTES", 4000)
    monkeypatch.setattr(client, "_MAX_BODY_BYTES", 40_000)
    kubernetes.put(slice_of(endpoint()))
    async with opened(kubernetes) as backend:
        await until(lambda: kubernetes.watches)
        kubernetes.wrong = wrong
        list_s = client._LIST_S
        if wrong is hangs:
            monkeypatch.setattr(client, "_LIST_S", 0.3)
        backend._version = ""  # so that the list is asked for, too
        kubernetes.cut()
        await until(lambda: said in caplog.text)
        assert addresses(backend) in (SERVES, {})  # an empty list is the truth
        await until(lambda: metrics.REGISTRY_VIEW_AGE.labels().value > 0.0)
        kubernetes.wrong, backend._version = None, ""
        monkeypatch.setattr(client, "_LIST_S", list_s)
        await until(lambda: addresses(backend) == SERVES and backend.age_s() == 0.0)
        assert " is reachable again after " in caplog.text
    lines = [one.getMessage() for one in caplog.records if said in one.getMessage()]
    assert len(set(lines)) == 1
    assert "still uses the last list (" in lines[0]


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_all_the_time(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []
    pause_s = registry._pause_s

    def noted(failures: int, draw: float) -> float:
        pauses.append(failures)
        return min(0.01, pause_s(failures, draw))

    async def ends(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "1"}})

    async def ended(request: web.Request) -> web.StreamResponse:
        return web.Response() if "watch" in request.query else await ends(request)

    monkeypatch.setattr(registry, "_pause_s", noted)
    kubernetes.wrong = ended
    async with opened(kubernetes, clock=lambda: 0.0) as backend:  # each watch takes no time
        await until(lambda: len(pauses) >= 4)
        assert pauses[:4] == [1, 2, 3, 4]
        assert backend.age_s() == 0.0  # it does answer


def test_pauses_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LONGEST_PAUSE_S", 5.0)
    assert registry._pause_s(0, 0.5) == 0.0
    assert [registry._pause_s(n, 1.0) for n in (1, 2, 3)] == pytest.approx([0.1, 0.2, 0.4])
    assert registry._pause_s(10_000, 1.0) == 5.0
    assert registry._pause_s(10_000, 0.0) == 2.5


async def test_a_refusal_says_what_to_look_at(
    kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuses(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": 403, "message": "not by you"}, status=403)

    kubernetes.wrong = refuses
    problem = await problem_of(config(kubernetes))
    assert problem is not None
    assert problem.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED
    assert problem.message == (
        f"Kubernetes at {kubernetes.url} rejects the credentials (403: not by you)."
        " Check discovery.kubernetes.token_file and discovery.kubernetes.ca_file"
    )
    async with opened(kubernetes, view=False) as backend:
        await until(lambda: "the last list (instances: 0)" in caplog.text)
        kubernetes.put(slice_of(endpoint()))
        kubernetes.wrong = None
        await until(lambda: addresses(backend) == SERVES)


async def test_a_selector_that_is_none(kubernetes: FakeKubernetes) -> None:
    async def refuses(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": 400, "message": "unable to parse"}, status=400)

    kubernetes.wrong = refuses
    problem = await problem_of(config(kubernetes, selector="a in"))
    assert problem is not None
    assert problem.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
    assert "(400: unable to parse). Check discovery.kubernetes.selector" in problem.message


async def test_more_slices_than_anybody_has(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_SLICES", 3)
    for number in range(4):
        kubernetes.put(slice_of(name=f"s-{number}"))
    problem = await problem_of(config(kubernetes))
    assert problem is not None
    assert "more than 3 EndpointSlices" in problem.message


async def test_what_is_left_out_is_said_once(
    kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture
) -> None:
    kubernetes.put(slice_of(endpoint(), name="odd", service="robot"))
    kubernetes.put(slice_of(endpoint()))
    async with opened(kubernetes) as backend:
        assert addresses(backend) == SERVES
        await until(lambda: kubernetes.watches)
        for _ in range(3):
            kubernetes.put(slice_of(endpoint(), name="odd", service="robot"))
        kubernetes.put(slice_of(endpoint("10.0.0.8")))
        await until(lambda: "10.0.0.8:9400" in addresses(backend))
    assert caplog.text.count("skipped the EndpointSlice odd") == 1


# ---- leases


def outside(address: str = "192.0.2.1:9", instance_id: str = "outside") -> pb.Instance:
    return pb.Instance(id=instance_id, service=MODEL, name="policy", address=address)


async def test_leases_stand_beside(kubernetes: FakeKubernetes) -> None:
    now = 0.0
    backend = KubernetesRegistry(config(kubernetes), clock=lambda: now)
    kubernetes.put(slice_of(endpoint()))
    await backend.open()
    try:
        await until(lambda: addresses(backend) == SERVES)
        watcher = backend.subscribe()
        lease, length = await backend.register(outside(), 30, "")
        assert length == 30
        assert addresses(backend) == SERVES | {"192.0.2.1:9": pb.HEALTH_SERVING}
        assert (await watcher.next()) is not None
        await backend.renew(lease, pb.HEALTH_DRAINING)
        assert addresses(backend)["192.0.2.1:9"] == pb.HEALTH_DRAINING
        await backend.deregister(lease)
        await backend.deregister(lease)
        assert addresses(backend) == SERVES
        with pytest.raises(MeshError) as raised:
            await backend.renew(lease, pb.HEALTH_SERVING)
        assert raised.value.reason == errors_pb2.ERROR_REASON_LEASE_NOT_FOUND
        await backend.register(outside(), 30, "")
        now = 31.0
        assert addresses(backend) == SERVES
        watcher.close()
    finally:
        await backend.close()


async def test_ids_that_are_taken(kubernetes: FakeKubernetes) -> None:
    kubernetes.put(slice_of(endpoint(ready=False)))
    async with opened(kubernetes) as backend:
        await backend.register(outside(), 30, "")
        for one in (outside("192.0.2.2:9"), outside("192.0.2.2:9", "model-policy-u-1")):
            with pytest.raises(MeshError, match="another live instance has the id") as raised:
                await backend.register(one, 30, "")
            assert raised.value.reason == errors_pb2.ERROR_REASON_INSTANCE_EXISTS
        # The pod itself may; what Kubernetes says of it counts.
        await backend.register(outside("10.0.0.7:9400", "model-policy-u-1"), 30, "")
        assert addresses(backend)["10.0.0.7:9400"] == pb.HEALTH_NOT_SERVING


# ---- access


async def test_a_token_is_read_for_each_request(
    kubernetes: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod's token lives for an hour."""
    token = tmp_path / "token"
    token.write_text("first-token-of-the-pod\n")
    seen: list[str | None] = []

    def here(config: KubernetesConfig) -> Access:
        return Access(kubernetes.url, "lab", token_file=str(token))

    async def notes(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({"metadata": {"resourceVersion": "1"}})

    monkeypatch.setattr(registry, "find_access", here)
    kubernetes.wrong = notes
    backend = KubernetesRegistry(KubernetesConfig())
    await backend.open()
    try:
        await until(lambda: "Bearer first-token-of-the-pod" in seen)
        token.write_text("second-token-of-the-pod")
        await until(lambda: "Bearer second-token-of-the-pod" in seen)
        token.unlink()
        await until(lambda: backend.age_s() > 0.0)
        token.write_text("third-token-of-the-pod")
        await until(lambda: "Bearer third-token-of-the-pod" in seen)
    finally:
        await backend.close()


async def test_no_kubernetes_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="not running in Kubernetes"):
        await KubernetesRegistry(KubernetesConfig()).open()

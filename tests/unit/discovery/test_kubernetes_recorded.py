"""The backend over what a real API server said: its lists, its watches and its refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.backends.kubernetes import KubernetesRegistry, problem_of
from gymmesh_discovery.backends.kubernetes.entry import read_slice
from gymmesh_discovery.backends.kubernetes.objects import EndpointSliceList, read
from gymmesh_discovery.config import KubernetesConfig
from tests.unit.discovery.fake_kubernetes import answering
from tests.unit.discovery.kubernetes_slices import MODEL, RECORDED
from tests.unit.runtime.probe import until


def encoded(what: str) -> bytes:
    return json.dumps(RECORDED[what]).encode()


def test_a_list() -> None:
    (found,) = read(encoded("list"), EndpointSliceList).items or []
    instances, left_out = read_slice(found, "grpc", "metrics")
    assert left_out == []
    serves, starts = sorted(instances, key=lambda one: one.address)
    uid = serves.id.removeprefix("model-policy-")
    assert len(uid) == 36
    assert serves == pb.Instance(
        id=f"model-policy-{uid}",
        service=MODEL,
        name="policy",
        address="10.0.0.7:9400",
        metrics_address="10.0.0.7:9100",
        contract_version="1.0",
        weight=3,
        meta={"keepalive_s": "20", "kubernetes_service": "policy", "pod": "policy-0"},
        locality=pb.Locality(zone="eu-1a", host="node-1"),
        health=pb.HEALTH_SERVING,
    )
    assert (starts.address, starts.health) == ("10.0.0.8:9400", pb.HEALTH_NOT_SERVING)


def test_an_empty_list_and_a_page() -> None:
    empty = read(encoded("empty"), EndpointSliceList)
    assert not empty.items
    assert empty.metadata.resource_version
    assert not empty.metadata.continue_
    page = read(encoded("page"), EndpointSliceList)
    assert len(page.items or []) == 1
    assert page.metadata.continue_


async def test_a_watch_from_a_pods_start_to_its_end() -> None:
    async with answering() as kubernetes:
        backend = KubernetesRegistry(KubernetesConfig(server=kubernetes.url, namespace="lab"))
        await backend.open()
        try:
            await until(lambda: kubernetes.watches)
            watcher = backend.subscribe()
            for event in RECORDED["events"] + RECORDED["bookmark"]:
                kubernetes.send(event["type"], event["object"])
            seen: dict[str, list[str]] = {}
            while seen.get("10.0.0.8:9400", [""])[-1] != "gone":
                change = await watcher.next()
                assert change is not None
                health = "gone" if change.removed else pb.Health.Name(change.instance.health)
                seen.setdefault(change.instance.address, []).append(health.removeprefix("HEALTH_"))
            watcher.close()
            assert seen["10.0.0.7:9400"] == ["SERVING", "DRAINING", "NOT_SERVING", "gone"]
            assert seen["10.0.0.8:9400"][-2:] == ["NOT_SERVING", "gone"]
            # From a bookmark, which knows of what is not watched, the next watch goes on.
            last = RECORDED["bookmark"][-1]
            assert last["type"] == "BOOKMARK"
            kubernetes.cut()
            await until(lambda: len(kubernetes.requests) == 3)
            version = last["object"]["metadata"]["resourceVersion"]
            assert kubernetes.requests[-1].query["resourceVersion"] == version
        finally:
            await backend.close()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "unauthorized",
            "(401: Unauthorized). Check discovery.kubernetes.token_file and "
            "discovery.kubernetes.ca_file",
        ),
        ("forbidden", "(403: endpointslices.discovery.k8s.io is forbidden: User"),
        ("bad_selector", ". Check discovery.kubernetes.selector"),
    ],
)
async def test_a_refusal(what: str, said: str) -> None:
    status: dict[str, Any] = RECORDED[what]

    async def refuses(request: web.Request) -> web.StreamResponse:
        return web.json_response(status, status=status["code"])

    async with answering() as kubernetes:
        kubernetes.wrong = refuses
        problem = await problem_of(KubernetesConfig(server=kubernetes.url, namespace="lab"))
    assert problem is not None
    assert said in problem.message

"""`gym-cli` finds agents that run in Kubernetes, by itself and through a discovery service."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.cluster import ADMIN, Cluster
from tests.kubernetes.pods import bury_pod, end_pod, service, start_pod
from tests.support.cli import ended, gym, rows_of, start, sums, write_tasks
from tests.support.docs import ROOT, read_page
from tests.support.ports import free_port

ROLLOUTS: Final = 60
BOUND_S: Final = 180.0


def own_address() -> str:
    """This machine's address in its network: Kubernetes lists no loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        address = str(probe.getsockname()[0])
    assert not address.startswith("127."), "these tests need an address other than loopback"
    return address


@asynccontextmanager
async def up(*args: str | Path) -> AsyncIterator[tuple[Process, list[dict[str, Any]]]]:
    """A `gym-cli up` that has said that it is ready, and its services."""
    process = await start("up", *args, "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
        assert line, (await ended(process)).err
        yield process, json.loads(line)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), BOUND_S)
    assert process.returncode == 0


def sets(**values: Any) -> list[str]:
    return [
        word for key, one in values.items() for word in ("--set", f"{key.replace('__', '.')}={one}")
    ]


def over(cluster: Cluster, namespace: str, folder: Path) -> list[str]:
    """The options that say where Kubernetes is."""
    (folder / "token").write_text(ADMIN)
    return sets(
        discovery__kubernetes__server=cluster.server,
        discovery__kubernetes__ca_file=cluster.ca_file,
        discovery__kubernetes__token_file=folder / "token",
        discovery__kubernetes__namespace=namespace,
    )


def pod_options(elsewhere: list[str], folder: Path, address: str, port: int) -> list[str]:
    """What a pod of docs/how-to/kubernetes.md runs: an agent with an environment, and a slow model.
    ``elsewhere`` stands for the pod's account.
    """
    call = {"type": "function_call", "name": "calculator", "call_id": "call_1"}
    call["arguments"] = '{"expression": "1 + 1"}'
    answers = [{"output": [call], "delay_s": 0.4}, {"text": "2", "delay_s": 0.4}]
    path = folder / "answers.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    mesh = folder / "mesh.yaml"
    mesh.write_text(json.dumps({"models": {"policy": {"backend": "replay", "path": str(path)}}}))
    text = read_page(ROOT / "docs" / "how-to" / "kubernetes.md").files()["deploy-agent.yaml"]
    _, deployment = yaml.safe_load_all(text)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["gym-cli", "up"]
    stands_for = {"$(POD_IP)": address, "mesh.yaml": str(mesh), "9401": str(port)}
    args: list[str] = container["args"][2:]
    for name, value in stands_for.items():
        assert any(name in one for one in args)
        args = [one.replace(name, value) for one in args]
    return [*args, *elsewhere]


async def seen(cluster: Cluster, namespace: str, holds: Callable[[list[Any]], bool]) -> None:
    """Until Kubernetes itself lists such endpoints."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    async with asyncio.timeout(BOUND_S):
        while True:
            items = (await cluster.ask("GET", path))["items"]
            if holds([one for item in items for one in item["endpoints"] or []]):
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("through", ["discovery", "kubernetes"])
async def test_an_instance_is_removed_during_a_collection(
    cluster: Cluster, namespace: str, tmp_path: Path, through: str
) -> None:
    address, taken = own_address(), set[int]()
    ports = [free_port(address, taken) for _ in range(2)]
    await cluster.apply(service(namespace, "agent", "agent", "tool_loop"))
    elsewhere = over(cluster, namespace, tmp_path)
    nothing = sets(models="{}", environments="{}", agents="{}")
    async with (
        up(*pod_options(elsewhere, tmp_path, address, ports[0])) as (first, _),
        up(*pod_options(elsewhere, tmp_path, address, ports[1])),
        up(*elsewhere, *nothing, "--discovery", "kubernetes") as (_, (registry,)),
    ):
        for number, port in enumerate(ports):
            name = f"agent-{number}"
            await start_pod(cluster, namespace, "agent", name, ip=address, port=port)
        await seen(cluster, namespace, lambda found: len(found) == 2)
        tasks, output = write_tasks(tmp_path, sums(ROLLOUTS)), tmp_path / "rows.jsonl"
        if through == "discovery":
            where = ["--agent", f"discovery://{registry['address']}/tool_loop"]
        else:
            where = ["--agent", "kubernetes:///tool_loop", *elsewhere]
        collect = await start(
            "collect", *where, "-i", tasks, "-o", output, "--concurrency", "6", "--json", "-q"
        )
        whole = asyncio.create_task(asyncio.wait_for(collect.communicate(), BOUND_S))
        await until_rows(output, 10)
        # As Kubernetes ends a pod: no longer ready, SIGTERM, and gone when it has ended.
        await end_pod(cluster, namespace, "agent-0")
        first.send_signal(signal.SIGTERM)
        await asyncio.wait_for(first.wait(), BOUND_S)
        await bury_pod(cluster, namespace, "agent-0")
        await seen(cluster, namespace, lambda found: len(found) == 1)
        assert collect.returncode is None, "the collection was over before the pod was"
        out, err = await whole
        assert collect.returncode == 0, err.decode()
        assert json.loads(out)["completed"] == ROLLOUTS
        await bury_pod(cluster, namespace, "agent-1")
    rows = rows_of(output)
    assert set(Counter(row["task_id"] for row in rows).values()) == {1}
    assert len(rows) == ROLLOUTS
    print(json.dumps({"through": through, "collect": json.loads(out)}))


async def until_rows(path: Path, count: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while len(rows_of(path)) < count:  # noqa: ASYNC110  # a file has no event for it
            await asyncio.sleep(0.05)


async def test_the_discovery_service_conforms(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    elsewhere = over(cluster, namespace, tmp_path)
    nothing = sets(models="{}", environments="{}", agents="{}")
    async with up(*elsewhere, *nothing, "--discovery", "kubernetes") as (_, (registry,)):
        done = await gym("conformance", "--target", registry["address"], "--service", "discovery")
    assert done.code == 0, done.out


async def test_up_says_why_it_does_not_start(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    elsewhere = over(cluster, namespace, tmp_path)
    (tmp_path / "token").write_text("no-such-token")
    done = await gym("up", *elsewhere, "--discovery", "kubernetes")
    assert done.code == 1
    done.said(
        f"Kubernetes at {cluster.server} rejects the credentials (401: Unauthorized)", "token_file"
    )
    assert "no-such-token" not in done.err

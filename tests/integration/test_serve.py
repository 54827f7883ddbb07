"""gym-cli serve: a mesh whose processes are started one by one, as containers are."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.cli import BOUND_S, ended, gym, rows_of, start, sums, write_tasks
from tests.support.ports import free_port

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    """A configuration whose model answers every question with 1."""
    recording = tmp_path / "answers.jsonl"
    recording.write_text(json.dumps({"match": "*", "answers": [{"text": "1"}]}) + "\n")
    path = tmp_path / "mesh.yaml"
    path.write_text(
        f"models: {{policy: {{backend: replay, path: '{recording}'}}}}\nmesh: {{drain_s: 5}}\n"
    )
    return path


@asynccontextmanager
async def serving(*args: str | Path) -> AsyncIterator[tuple[Process, dict[str, Any]]]:
    """A service that is SERVING, with the line that it said so with; it must end with 0."""
    process = await start("serve", *args, "--json")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_S):
            said = await process.stdout.readline()
        assert said, "it ended"
        yield process, json.loads(said)
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def health_at(port: int, *, wait: bool = True) -> int:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        answer = await stub.Check(request, timeout=BOUND_S, wait_for_ready=wait)
        status: int = answer.status
        return status


async def test_a_mesh_of_single_services_collects(mesh: Path, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        _, registry = await stack.enter_async_context(
            serving("discovery", "--config", mesh, "--instance", "host-1")
        )
        assert registry["id"] == "registry-host-1"
        found: list[str | Path] = ["--config", mesh, "--discovery", registry["address"]]
        for kind, name in (("model", "policy"), ("environment", "math")):
            await stack.enter_async_context(serving(kind, name, *found))
        agents = []
        for instance in ("host-1", "host-2"):
            _, agent = await stack.enter_async_context(
                serving("agent", "tool_loop", *found, "--instance", instance)
            )
            assert agent["id"] == f"agent-tool_loop-{instance}"
            agents += ["--agent", agent["address"]]
        output = tmp_path / "rollouts.jsonl"
        tasks = write_tasks(tmp_path, sums(4))
        collected = await gym("collect", "-i", tasks, "-o", output, "--quiet", *agents)
        assert collected.code == 0, collected.err
        rewards = {row["task_id"]: row["reward"] for row in rows_of(output)}
        assert rewards == {"sum-0": 1.0, "sum-1": 0.0, "sum-2": 0.0, "sum-3": 0.0}


async def test_over_mutual_tls_probes_still_reach_health(mesh: Path, tmp_path: Path) -> None:
    made = await gym("certs", "dev", "--out", tmp_path / "certs")
    assert made.code == 0, made.err
    folder = tmp_path / "certs"
    mesh.write_text(
        mesh.read_text()
        + f"security: {{tls: {{authority: {folder}/ca.pem, certificate: {folder}/services.pem, "
        f"key: {folder}/services.key}}}}\n"
    )
    port = free_port(taken=set())
    async with (
        serving("discovery", "--config", mesh) as (_, registry),
        serving(
            "agent", "tool_loop", "--config", mesh, "--discovery", registry["address"],
            "--health-port", str(port),
        ) as (_, agent),
    ):  # fmt: skip
        assert await health_at(port) == SERVING
        with pytest.raises(grpc.aio.AioRpcError):
            await health_at(int(agent["address"].rpartition(":")[2]), wait=False)


async def test_a_port_that_is_taken_is_one_sentence(mesh: Path) -> None:
    async with serving("discovery", "--config", mesh) as (_, said):
        port = said["address"].rpartition(":")[2]
        # What the tests themselves have gRPC log is not the user's choice.
        own = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
        words = ("serve", "discovery", "--config", str(mesh), "--port", port)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gymmesh_cli", *words), stdout=PIPE, stderr=PIPE, env=own
        )
        done = await ended(process)
    assert done.code != 0
    assert "the port is taken" in done.err
    assert [line[:9] for line in done.err.splitlines()] == ["gym-cli: "]


async def test_it_is_found_at_what_it_advertises(mesh: Path) -> None:
    port = free_port(taken=set())
    place = ["--host", "0.0.0.0", "--insecure", "--advertise", "127.0.0.1", "--port", str(port)]
    async with serving("discovery", "--config", mesh, *place) as (_, said):
        assert said["address"] == f"127.0.0.1:{port}"
        assert said["metrics_address"].startswith("127.0.0.1:")
        assert await health_at(port) == SERVING


async def test_the_health_port_has_the_health_of_the_process_and_nothing_else(mesh: Path) -> None:
    port = free_port(taken=set())
    absent = f"127.0.0.1:{free_port(taken={port})}"
    where: list[str | Path] = ["--config", mesh, "--health-port", str(port)]
    async with serving("discovery", *where):
        assert await health_at(port) == SERVING
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary(
                "/gymmesh.discovery.v1.DiscoveryService/ListInstances",
                request_serializer=None,
                response_deserializer=None,
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"", timeout=BOUND_S)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    # One that cannot register is up, and not SERVING, until it gives up.
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gymmesh_cli", "serve", "agent", "tool_loop", *map(str, where),
        "--discovery", absent, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    assert await health_at(port) == NOT_SERVING
    async with asyncio.timeout(BOUND_S):
        out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    last = err.decode().splitlines()[-1]
    assert last.startswith("gym-cli: the agent service 'tool_loop' could not start: "), last
    assert "the registry is unreachable" in last


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["agent", "nobody"], "configuration has no agent 'nobody'. Services of this kind: 'tool_"),
        (["agent", "tool_loop"], "Pass its address with --discovery HOST:PORT"),
        (["discovery", "--discovery", "127.0.0.1:1"], "does not register itself; remove"),
        (
            ["model", "policy", "--discovery", "127.0.0.1:1", "--set", "discovery.backend=consul"],
            "services register themselves in Consul (discovery.backend); remove --discovery",
        ),
        (["discovery", "--host", "0.0.0.0"], "will not listen on 0.0.0.0 without TLS"),
        (["agent"], "NAME is missing: name the agent of the configuration to serve"),
    ],
)  # fmt: skip
async def test_what_does_not_fit_is_refused_in_a_sentence(
    mesh: Path, arguments: list[str], sentence: str
) -> None:
    ended = await gym("serve", *arguments, "--config", mesh)
    assert ended.code == 2
    ended.said(sentence)


async def test_a_taken_port_is_a_sentence(mesh: Path) -> None:
    async with serving("discovery", "--config", mesh) as (_, said):
        port = said["address"].rpartition(":")[2]
        ended = await gym("serve", "discovery", "--config", mesh, "--port", port)
        assert ended.code == 1
        ended.said("the discovery service 'registry' could not start: cannot listen on", port)

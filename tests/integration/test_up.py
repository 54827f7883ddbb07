"""A mesh of processes: how it comes up, what it says when it can't, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_mesh import MeshConfig, MeshSettings, ServiceInfo, remote, run_up, up
from gymmesh_mesh.config import Defaults, Layout
from gymmesh_mesh.processes import StartError
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.config import Secret
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import SecurityConfig
from tests.conftest import require
from tests.support.cli import gym
from tests.unit.runtime.probe import DISCOVERY, instance_at, until

pytestmark = pytest.mark.long(seconds=110)

REPOSITORY = Path(__file__).parents[2]
KINDS = ["discovery", "model", "environment", "agent"]


def config_of(model: ModelConfig | None = None, **settings: Any) -> MeshConfig:
    """Four services; the model's endpoint is one that nobody calls here."""
    model = model or ModelConfig(backend="chat", url="http://127.0.0.1:9/v1", model="m")
    settings = {"drain_s": 2.0, "ready_s": 60.0} | settings
    return MeshConfig(models={"policy": model}, mesh=MeshSettings(**settings))


def replaying(tmp_path: Path) -> ModelConfig:
    path = tmp_path / "recorded.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    return ModelConfig(backend="replay", path=str(path))


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    require(Path("/proc/self/stat").exists(), "/proc", "run on Linux")
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def cpu_of(info: ServiceInfo) -> float:
    """Seconds of processor time that a service's process has used."""
    stat = Path(f"/proc/{info.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def workers_of(parent: int) -> list[int]:
    """The living children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(stat[1]) == parent and stat[0] not in ("Z", "X"):
                found.append(int(entry.name))
    return found


@pytest.fixture(autouse=True)
async def no_process_is_left_behind() -> AsyncIterator[None]:
    before = set(workers_of(os.getpid()))
    yield
    left = set(workers_of(os.getpid())) - before
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


async def health_of(address: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        status: int = (await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)).status
        return status


@pytest.mark.parametrize("backend", ["chat", "replay"])
async def test_all_services_are_serving_and_know_one_another(
    backend: str, tmp_path: Path, record_property: Any
) -> None:
    """Wall and CPU seconds from nothing to four services SERVING are reported, not asserted."""
    config = config_of(replaying(tmp_path) if backend == "replay" else None)
    directory = PeerDirectory()
    started = time.monotonic()
    async with up(config) as mesh:
        record_property("start_to_ready_wall_s", round(time.monotonic() - started, 2))
        record_property("start_to_ready_cpu_s", round(sum(map(cpu_of, mesh.infos)), 2))
        assert [one.kind for one in mesh.infos] == KINDS
        for info in mesh.infos:
            assert await health_of(info.address) == health_pb2.HealthCheckResponse.SERVING
            assert info.metrics_address
        registry = instance_at(mesh.address_of("discovery"), service=DISCOVERY)
        page = await directory.peer(registry).ListInstances(
            discovery_pb2.ListInstancesRequest(), timeout=60
        )
        assert {(one.address, one.health) for one in page.instances} == {
            (one.address, discovery_pb2.HEALTH_SERVING) for one in mesh.infos[1:]
        }
        async with remote(mesh.address_of("agent")) as outside:
            assert outside.defaults.agent == "tool_loop"
            (instance,) = outside.directory.instances()
            about = await outside.directory.peer(instance).GetAgent(
                agent_pb2.GetAgentRequest(), timeout=60
            )
            assert about.name == "tool_loop"
        with pytest.raises(LookupError):
            mesh.address_of("agent", "nobody")
    await directory.close()
    assert not any(alive(one.pid) for one in mesh.infos)


async def refusal(config: MeshConfig) -> str:
    with pytest.raises(StartError) as caught:
        async with asyncio.timeout(60), up(config):
            pytest.fail("it should not have come up")
    return str(caught.value)


async def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.jsonl")
    said = await refusal(config_of(ModelConfig(backend="replay", path=missing)))
    assert said.startswith("the model service 'policy' could not start: ")
    assert missing in said
    assert "Traceback" not in said
    assert "\n" not in said


async def test_an_environment_that_does_not_exist() -> None:
    config = MeshConfig(
        models={"policy": ModelConfig(backend="chat", url="http://127.0.0.1:9/v1")},
        environments={"mathe": EnvironmentConfig(use="mathe")},
        defaults=Defaults(environment="mathe"),
    )
    said = await refusal(config)
    assert said.startswith("the environment service 'mathe' could not start: ")
    assert "Traceback" not in said


async def test_a_registry_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = await refusal(config_of(discovery_port=port))
    assert said.startswith(
        "the discovery service 'registry' could not start: "
        f"cannot listen on 127.0.0.1:{port}: the port is taken"
    )


async def test_a_start_that_takes_too_long() -> None:
    assert "mesh.ready_s" in await refusal(config_of(ready_s=0.01))


async def test_an_environment_that_prints_and_ends_the_process(tmp_path: Path) -> None:
    """What it prints is in the log, and does not pass for the worker's own answer."""
    room = tmp_path / "loud.py"
    room.write_text(
        "import os, sys\n"
        'print(\'{"ready": {"address": "nowhere"}}\', flush=True)\n'
        "print('x' * 300_000, flush=True)\n"
        "sys.stderr.write('that was it\\n')\n"
        "sys.stderr.flush()\n"
        "os._exit(3)\n"
    )
    config = MeshConfig(
        models={"policy": ModelConfig(backend="chat", url="http://127.0.0.1:9/v1")},
        environments={"loud": EnvironmentConfig(use=f"{room}:Loud")},
        defaults=Defaults(environment="loud"),
    )
    said = await refusal(config)
    assert said.startswith("the environment service 'loud' ended with status 3;")
    assert said.endswith("that was it")


async def test_secrets_stay_out_of_the_workers_arguments_and_environment() -> None:
    model = ModelConfig(
        backend="chat",
        url="http://127.0.0.1:9/v1",
        api_key=Secret("swordfish"),
        headers={"X-Key": Secret("sesame")},
    )
    lines: list[str] = []
    async with up(config_of(model), echo=lines.append) as mesh:
        seen = b""
        for info in mesh.infos:
            for part in ("cmdline", "environ"):
                seen += Path(f"/proc/{info.pid}/{part}").read_bytes()
        assert b"gymmesh_mesh.worker" in seen
    for secret in ("swordfish", "sesame"):
        assert secret.encode() not in seen
        assert secret not in "\n".join(lines)


async def running(config: MeshConfig) -> tuple[asyncio.Task[None], list[ServiceInfo]]:
    """`run_up` as a task, once it is ready."""
    infos: list[ServiceInfo] = []
    task = asyncio.create_task(run_up(config, on_ready=infos.extend))
    await until(lambda: infos or task.done(), 60)
    if not infos:
        await task
    return task, infos


@pytest.mark.parametrize("victim", KINDS)
async def test_a_worker_that_is_killed_ends_the_mesh_and_is_named(victim: str) -> None:
    task, infos = await running(config_of(drain_s=1.0))
    killed = next(one for one in infos if one.kind == victim)
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(StartError) as caught:
        await asyncio.wait_for(task, 60)
    said = str(caught.value)
    assert said.startswith(f"the {victim} service '{killed.name}' ended with status -9;")
    assert not any(alive(one.pid) for one in infos)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_all(number: signal.Signals) -> None:
    task, infos = await running(config_of())
    os.kill(os.getpid(), number)
    await asyncio.wait_for(task, 60)
    assert not any(alive(one.pid) for one in infos)


async def test_a_signal_during_the_start_stops_all() -> None:
    ready: list[ServiceInfo] = []
    before = set(workers_of(os.getpid()))
    task = asyncio.create_task(run_up(config_of(), on_ready=ready.extend))
    await until(lambda: set(workers_of(os.getpid())) - before)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(task, 60)
    assert not ready


PARENT = """
import asyncio, sys
from gymmesh_mesh import MeshConfig, run_up
from gymmesh_model.config import ModelConfig

model = ModelConfig(backend="chat", url="http://127.0.0.1:9/v1")
def ready(infos):
    print(" ".join(str(one.pid) for one in infos), flush=True)
asyncio.run(run_up(MeshConfig(models={"policy": model}), on_ready=ready))
"""


async def test_workers_go_when_their_parent_is_killed() -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE, cwd=REPOSITORY
    )
    assert parent.stdout is not None
    line = await asyncio.wait_for(parent.stdout.readline(), 240)
    pids = [int(text) for text in line.split()]
    assert len(pids) == 4
    assert all(alive(pid) for pid in pids)
    parent.kill()
    await parent.wait()
    try:
        await until(lambda: not any(alive(pid) for pid in pids), 60)
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("layout", "processes"), [("embedded", 1), ("cell", 3)])
async def test_a_layout_collects_whatever_shares_a_process(
    tmp_path: Path, layout: Layout, processes: int
) -> None:
    tasks, rows = tmp_path / "tasks.jsonl", tmp_path / "rows.jsonl"
    line = {"responses_create_params": {"input": "2 + 2?"}, "expected_answer": "4"}
    tasks.write_text("".join(json.dumps({"task_id": str(n), **line}) + "\n" for n in range(8)))
    config = config_of(replaying(tmp_path), layout=layout, cells=2)
    async with up(config) as mesh:
        assert len({info.pid for info in mesh.infos}) == processes
        agents = [info.address for info in mesh.infos if info.kind == "agent"]
        assert all(agents)
        assert not any(info.address for info in mesh.infos if info.kind == "environment")
        named = [argument for address in agents for argument in ("--agent", address)]
        done = await gym("collect", "-i", tasks, "-o", rows, *named, fresh=True)
        assert done.code == 0, done.err
    found = [json.loads(row) for row in rows.read_text().splitlines()]
    assert [row["reward"] for row in found] == [1.0] * 8


@pytest.mark.parametrize(("host", "sentences"), [("0.0.0.0", 2), ("127.0.0.1", 0)])
async def test_a_host_that_others_can_reach_is_said_on_stderr(
    tmp_path: Path, host: str, sentences: int
) -> None:
    config = tmp_path / "mesh.yaml"
    config.write_text(f"models: {{policy: {{backend: replay, path: {tmp_path}/recorded.jsonl}}}}\n")
    replaying(tmp_path)
    # A machine may have several addresses; one of them must then be named.
    command = ["-m", "gymmesh_cli", "up", "--config", str(config), "--host", host]
    command += ["--advertise", "127.0.0.1"]
    mesh = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        "--layout",
        "embedded",
        *(["--insecure"] if sentences else []),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert mesh.stdout is not None
    assert b"SERVICE" in await asyncio.wait_for(mesh.stdout.readline(), 240)
    mesh.send_signal(signal.SIGINT)
    _, said = await asyncio.wait_for(mesh.communicate(), 240)
    assert mesh.returncode == 0
    lines = said.decode().splitlines()
    assert len(lines) == sentences, said
    assert all(line.startswith("gym-cli: NO AUTHENTICATION, NO ENCRYPTION: ") for line in lines)


async def test_all_get_the_advertised_host_and_no_wildcard(tmp_path: Path) -> None:
    """The table, the registry and the metrics; and what is registered can be called."""
    config = config_of(replaying(tmp_path), host="0.0.0.0", advertise_host="127.0.0.1")
    config = msgspec.structs.replace(config, security=SecurityConfig(insecure=True))
    directory = PeerDirectory()
    async with up(config) as mesh:
        registry = instance_at(mesh.address_of("discovery"), service=DISCOVERY)
        page = await directory.peer(registry).ListInstances(
            discovery_pb2.ListInstancesRequest(), timeout=60
        )
        assert {one.address for one in page.instances} == {one.address for one in mesh.infos[1:]}
        said = [address for one in mesh.infos for address in (one.address, one.metrics_address)]
        said += [one.metrics_address for one in page.instances]
        assert {address.rpartition(":")[0] for address in said} == {"127.0.0.1"}
        for info in mesh.infos:
            assert await health_of(info.address) == health_pb2.HealthCheckResponse.SERVING
    await directory.close()


@pytest.mark.parametrize("advertised", ["0.0.0.0", "127.0.0.1:9401"])
async def test_a_host_that_nobody_could_connect_to_is_one_sentence(advertised: str) -> None:
    done = await gym("up", "--host", "0.0.0.0", "--insecure", "--advertise", advertised, fresh=True)
    assert done.code == 2
    assert done.err.count("\n") == 1
    done.said("mesh.advertise_host", advertised, "--advertise HOST")

"""The sandbox service in Go: it passes the suite and its hostile part, and serves rollouts."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from gymmesh_mesh import MeshConfig, up
from gymmesh_runtime.config import load_config
from tests.clients.conftest import LANGUAGES
from tests.clients.mixed import until_serving
from tests.clients.programs import REPOSITORY
from tests.clients.services import service
from tests.clients.test_conformance import results_of
from tests.support.cli import gym, rows_of
from tests.support.served import serve

pytestmark = pytest.mark.skipif("go" not in LANGUAGES, reason="the client in Go is not asked for")

_SHOP: Final = REPOSITORY / "examples/first_environment/shop.py"
_GO: Final = "go sandbox"
#: What it does not offer, so that cases are skipped: it must stay this.
_LACKS: Final = {
    *("memory", "pids", "disk", "users", "ports", "snapshots", "forks", "thread_usage"),
    *("process_limits", "python", "hosts"),
}
_ENVIRONMENT: Final = '''
from gymmesh_resource import Environment, SandboxSpec, tool

class Bench(Environment[None]):
    """A folder to work in."""

    sandbox = SandboxSpec(files={"notes": "one\\n"}, lent=True)

    @tool
    async def shell(self, session, line: str) -> str:
        """Run a line."""
        return (await session.sandbox.exec(line)).text

    async def verify(self, session, rollout):
        notes = await session.sandbox.files.read("notes")
        return float(notes == b"one\\ntwo\\n" and (await session.sandbox.exec("test -f notes")).ok)
'''


async def test_it_conforms() -> None:
    async with service(_GO) as running:
        results = await results_of(
            *("--service", "sandbox", "--target", running.address, "--hostile"),
            *("--stop", f"kill -TERM {running.process.pid}"),
        )
    assert {one["lacks"] for one in results if one["outcome"] == "skipped"} == _LACKS
    print(f"sandboxes in Go: {len(results)} cases")


async def test_it_serves_a_rollout(tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(_ENVIRONMENT)
    line = json.dumps({"line": "echo two >> notes; cat notes"})
    call = {"type": "function_call", "name": "shell", "arguments": line, "call_id": "c1"}
    answers = [{"output": [call]}, {"text": "done"}]
    (tmp_path / "policy.jsonl").write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    task = {"task_id": "t", "responses_create_params": {"input": "go"}, "environment": "bench"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    config = {
        "models": {"policy": {"backend": "replay", "path": str(tmp_path / "policy.jsonl")}},
        "environments": {"other": {"use": f"{_SHOP}:Shop"}},
    }
    bench = {"use": f"{tmp_path / 'bench.py'}:Bench", "sandboxes": {"sandbox": "boxes"}}
    mesh_file, bench_file = tmp_path / "mesh.yaml", tmp_path / "bench.yaml"
    mesh_file.write_text(json.dumps(config))
    bench_file.write_text(json.dumps({"environments": {"bench": bench}}))
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(up(load_config([mesh_file], [], MeshConfig)))
        registry = mesh.address_of("discovery")
        await stack.enter_async_context(service(_GO, "--registry", registry))
        await until_serving(registry, ["boxes"])
        served = await serve(
            *("environment", "bench", "--config", bench_file, "--discovery", registry),
            log=tmp_path / "log",
        )
        stack.push_async_callback(served.kill)
        await until_serving(registry, ["bench", "policy"])
        ended = await gym(
            *("collect", "--agent", mesh.address_of("agent"), "-i", tmp_path / "tasks.jsonl"),
            *("-o", tmp_path / "rows.jsonl", "--num-repeats", "4", "-q", "--trace"),
        )
    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "rows.jsonl")
    assert [row["reward"] for row in rows] == [1.0] * 4
    opened = [one["sandbox"] for row in rows for one in row["sandboxes"]]
    assert {one["service"] for one in opened} == {"boxes"}
    assert len({one["sandbox_id"] for one in opened}) == 4

"""Rollouts with sandboxes: what their rows say, what nothing says, and what a lost one does.

Everything is real, in one process, over a backend whose sandboxes are folders; the sandbox
service's methods are watched, not replaced.
"""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_cli.main import cli
from gymmesh_sandbox.servicer import SandboxServicer

Row = dict[str, Any]
BACKEND = "tests.support.directory_sandboxes:DirectoryBackend"

ENVIRONMENT = '''
from gymmesh_resource import Environment, SandboxSpec, tool

class Bench(Environment[None]):
    """A folder that the agent may work in."""

    sandbox = SandboxSpec(files={"notes": "one"}, lent=True, labels={"for": "bench"})
    sandboxes = {"tests": SandboxSpec(image="", ttl_s=60)}

    @tool
    async def shell(self, session, line: str) -> str:
        """Run a line."""
        return (await session.sandbox.exec(line)).text

    async def verify(self, session, rollout):
        checked = await session.sandboxes["tests"].exec(["grep", "-q", "two"],
            stdin=await session.sandbox.files.read("notes"))
        return float(checked.ok)

class Early(Bench):
    """It ends the sandbox of its tests when it has used it."""

    async def verify(self, session, rollout):
        reward = await super().verify(session, rollout)
        await session.sandboxes["tests"].end()
        return reward

class Lost(Bench):
    """Its sandbox is lost while it is judged."""

    async def verify(self, session, rollout):
        try:
            return float((await session.sandbox.exec("remove me")).ok)
        except Exception:
            return 0.0
'''


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[sandbox_pb2.CreateSandboxResponse]:
    """The sandboxes that the service makes, leases included."""
    answers: list[sandbox_pb2.CreateSandboxResponse] = []
    create, execute = SandboxServicer.CreateSandbox, SandboxServicer.Exec

    async def watched(self: SandboxServicer, request: Any, context: Any) -> Any:
        answer = await create(self, request, context)
        answers.append(answer)
        return answer

    async def removed(self: SandboxServicer, request: Any, context: Any) -> Any:
        if request.process.shell == "remove me":
            remove = sandbox_pb2.RemoveSandboxRequest(sandbox_id=request.sandbox_id)
            await self.RemoveSandbox(remove, context)
        async for answer in execute(self, request, context):
            yield answer

    monkeypatch.setattr(SandboxServicer, "CreateSandbox", watched)
    monkeypatch.setattr(SandboxServicer, "Exec", removed)
    return answers


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "bench.py").write_text(ENVIRONMENT)
    arguments = json.dumps({"line": "echo two >>notes; cat notes"})
    call = {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": "c1"}
    policy = {"match": "*", "answers": [{"output": [call]}, {"text": "done"}]}
    (folder / "policy.jsonl").write_text(json.dumps(policy) + "\n")
    return folder


def collect(folder: Path, use: str) -> list[Row]:
    """The rows, completed and failed, of two repeats of one task."""
    config = {
        "models": {"policy": {"backend": "replay", "path": "policy.jsonl"}},
        "environments": {"bench": {"use": f"bench.py:{use}", "sandboxes": {"sandbox": "boxes"}}},
        "sandboxes": {
            "boxes": {
                "backend": BACKEND,
                "options": {"folder": str(folder.parent / "boxes")},
                "adapts": False,
            }
        },
    }
    (folder / "mesh.yaml").write_text(json.dumps(config))
    task = {"task_id": "t", "responses_create_params": {"input": "go"}, "environment": "bench"}
    (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    arguments = ["--config", "mesh.yaml", "--input", "tasks.jsonl", "--output", "out.jsonl"]
    with pytest.raises(SystemExit):
        cli(["collect", *arguments, "--num-repeats", "2", "--max-attempts", "1", "--trace"])
    files = [folder / "out.jsonl", folder / "out.failures.jsonl"]
    found = [file.read_text().splitlines() for file in files if file.exists()]
    return [json.loads(line) for lines in found for line in lines]


def test_rows_name_their_sandboxes_and_nothing_has_a_lease(
    folder: Path,
    made: list[sandbox_pb2.CreateSandboxResponse],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    rows = collect(folder, "Bench")
    assert [row["reward"] for row in rows] == [1.0, 1.0]
    lent = {one.grant.sandbox.sandbox_id for one in made[:]}
    for row in rows:
        assert [one["role"] for one in row["sandboxes"]] == ["workspace", "tests"]
        for opened in row["sandboxes"]:
            assert opened["sandbox"]["service"] == "boxes"
            assert opened["sandbox"]["image"] == "empty"
            assert opened["sandbox"]["sandbox_id"] in lent
            assert "end" not in opened
    assert len(made) == 4
    assert not list((folder.parent / "boxes" / "sandboxes").iterdir()), "all have ended"
    out, err = capfd.readouterr()
    written = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    written += [caplog.text.encode(), out.encode(), err.encode()]
    written.append(prometheus_client.generate_latest())
    assert any(b"sandbox_opened" in one or b"sandboxes" in one for one in written)
    for answer in made:
        for lease in (answer.own_lease, answer.grant.lease):
            shown = repr(lease)[2:-1].encode()
            forms = [lease, lease.hex().encode(), base64.b64encode(lease), shown]
            assert not [form for form in forms for text in written if form in text]


def test_a_lost_sandbox_fails_the_rollout_and_is_no_reward(
    folder: Path, made: list[sandbox_pb2.CreateSandboxResponse]
) -> None:
    rows = collect(folder, "Lost")
    assert len(rows) == 2
    for row in rows:
        assert row["failure"]["boundary"] == "SANDBOX"
        assert "SANDBOX_LOST" in json.dumps(row["failure"])
        assert row.get("reward") is None
    for row in rows:
        (opened,) = row["sandboxes"]
        assert opened["end"]["cause"] == "REMOVED"


def test_a_sandbox_that_its_environment_ended_says_so_in_the_row(
    folder: Path, made: list[sandbox_pb2.CreateSandboxResponse]
) -> None:
    for row in collect(folder, "Early"):
        assert row["reward"] == 1.0
        ends = {one["role"]: one.get("end") for one in row["sandboxes"]}
        assert ends == {"workspace": None, "tests": {"cause": "OWNER"}}

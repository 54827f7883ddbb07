"""Rollouts whose agent is a program: a real sandbox, a real gateway, a real verdict."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.programs.agent import ProgramAgent
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.backends.scripted import ScriptedBackend
from gymmesh_runtime.errors import MeshError, from_status
from tests.unit.programs.rollouts import COMMAND, LOOP, TITLED, program_mesh, shell

pytestmark = pytest.mark.long

CHECK = {"name": "done", "run": "grep -q right done"}
Events = Sequence[rollout_pb2.RolloutEvent]


def kinds(events: Events) -> list[str | None]:
    return [event.WhichOneof("event") for event in events]


def ended(events: Events) -> rollout_pb2.ProgramEnded:
    (found,) = (one.program_ended for one in events if one.HasField("program_ended"))
    return found


def failed(events: Events) -> tuple[str, str]:
    """Boundary and reason."""
    failure = events[-1].failed.failure
    name = rollout_pb2.Boundary.Name(failure.boundary).removeprefix("BOUNDARY_")
    return name, from_status(failure.status).reason_name


class Failing(Backend):
    """A model service whose calls fail, after as many answers as there are in the script."""

    calls_endpoint = False
    is_recorded = True

    def __init__(self, script: ScriptedBackend, answers: int) -> None:
        self._script, self._answers = script, answers
        self.capabilities = script.capabilities

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        self._answers -= 1
        if self._answers < 0:
            raise MeshError(errors_pb2.ERROR_REASON_MODEL_SERVER_ERROR, "the endpoint failed")
        return await self._script.create(call)


async def test_a_program_is_captured_and_judged(tmp_path: Path) -> None:
    script = ScriptedBackend([shell("echo right >done"), "It is done."])
    async with program_mesh(tmp_path, script) as mesh:
        events = await mesh.run(checks=[CHECK])
    started = events[0].started
    assert started.program.name == "python3"
    calls = [one.model_call_completed for one in events if one.HasField("model_call_completed")]
    assert [call.link for call in calls] == [rollout_pb2.CALL_LINK_CONTINUATION] * 2
    assert calls[1].parent_call_id == calls[0].call_id
    assert ended(events).exit_code == 0
    assert ended(events).output_tail == b"It is done.\n"
    (verified,) = (one.verified for one in events if one.HasField("verified"))
    assert verified.verification.reward == 1.0
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED


async def test_a_title_that_the_options_name_is_not_the_work(tmp_path: Path) -> None:
    script = ScriptedBackend(["A repair", shell("echo right >done"), "It is done."])
    title = {"kind": "title", "last": "Write a short title", "no_tools": True}
    command = ["python3", "-c", TITLED, "{prompt}"]
    async with program_mesh(tmp_path, script, command=command, side_calls=[title]) as mesh:
        events = await mesh.run(checks=[CHECK])
    calls = [one.model_call_completed for one in events if one.HasField("model_call_completed")]
    assert [(call.actor, call.side_call, call.trainable) for call in calls] == [
        ("title", "title", False), ("", "", True), ("", "", True)
    ]  # fmt: skip


async def test_a_model_call_that_failed_fails_the_rollout_whatever_the_exit(tmp_path: Path) -> None:
    quiet = 'python3 -c "$LOOP" {prompt} >/dev/null 2>&1; echo right >done; exit 0'
    model = Failing(ScriptedBackend([shell("echo right >done"), "Done."]), 1)
    async with program_mesh(tmp_path, model, command=quiet, env={"LOOP": LOOP}) as mesh:
        events = await mesh.run(checks=[CHECK])
    assert failed(events) == ("MODEL", "MODEL_SERVER_ERROR")
    assert ended(events).exit_code == 0
    assert "verified" not in kinds(events)


async def test_a_limit_of_the_policy_is_the_stop_reason_and_is_judged(tmp_path: Path) -> None:
    script = ScriptedBackend([shell("echo right >done"), shell("sleep 0"), "Done."])
    async with program_mesh(tmp_path, script, max_steps=2) as mesh:
        events = await mesh.run(checks=[CHECK])
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_MAX_STEPS
    (verified,) = (one.verified for one in events if one.HasField("verified"))
    assert verified.verification.reward == 1.0


async def test_its_time_is_up_and_it_is_judged_by_what_it_did(tmp_path: Path) -> None:
    script = ScriptedBackend([shell("echo right >done; sleep 1000"), "Done."])
    async with program_mesh(tmp_path, script, timeout_s=15.0) as mesh:
        events = await mesh.run(checks=[CHECK])
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_TIMEOUT
    assert ended(events).detail == "python3: its timeout_s expired"


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (["no-such-program"], ("PROGRAM", "PROGRAM_NOT_FOUND")),
        ("exit 0", ("PROGRAM", "PROGRAM_FAILED")),
        ("kill -9 $$", ("PROGRAM", "PROGRAM_KILLED")),
    ],
)
async def test_a_program_that_never_asked_is_not_judged(
    tmp_path: Path, command: Any, outcome: tuple[str, str]
) -> None:
    async with program_mesh(tmp_path, ScriptedBackend([]), command=command) as mesh:
        events = await mesh.run(checks=[{"run": "true"}])
    assert failed(events) == outcome
    assert "verified" not in kinds(events)


@pytest.mark.parametrize("kill", ["kill -9 $PPID", "kill $PPID", "kill -9 -1", "kill -INT $PPID"])
async def test_it_kills_itself_by_the_models_command_and_is_judged(
    tmp_path: Path, kill: str
) -> None:
    script = ScriptedBackend([shell(f"echo wrong >done; {kill}; sleep 30"), "Done."])
    async with program_mesh(tmp_path, script) as mesh:
        events = await mesh.run(checks=[CHECK])
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED
    (verified,) = (one.verified for one in events if one.HasField("verified"))
    assert verified.verification.reward == 0.0
    assert ended(events).signal or "exit code" in ended(events).detail


class Kills(Backend):
    """A model service during whose second call somebody on this machine kills the program."""

    calls_endpoint = False
    is_recorded = True

    def __init__(self, script: ScriptedBackend, mark: str) -> None:
        self._script, self._mark, self._calls = script, mark.encode(), 0
        self.capabilities = script.capabilities

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        self._calls += 1
        if self._calls == 2:
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    if words[0].endswith(b"python3") and self._mark in words:
                        os.kill(int(process.name), signal.SIGKILL)
            await asyncio.Event().wait()
        return await self._script.create(call)


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_kill_while_the_model_is_awaited_is_no_reward(tmp_path: Path, attempt: int) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    model = Kills(ScriptedBackend([shell("echo right >done"), "Done."]), mark)
    async with program_mesh(tmp_path, model, command=[*COMMAND, mark]) as mesh:
        events = await mesh.run(checks=[CHECK], attempt=attempt)
    assert ended(events).signal == signal.SIGKILL
    assert failed(events) == ("PROGRAM", "PROGRAM_KILLED")
    assert events[-1].failed.failure.retry_safe
    assert "verified" not in kinds(events)


async def test_what_it_left_is_gone_before_the_verdict(tmp_path: Path) -> None:
    left = "(while :; do echo more >>log; sleep 0.01; done) >/dev/null 2>&1 &"
    script = ScriptedBackend([shell(f"{left} sleep 0.5"), "Done."])
    check = {"run": "size=$(wc -c <log) && sleep 0.5 && test $size = $(wc -c <log)"}
    async with program_mesh(tmp_path, script) as mesh:
        events = await mesh.run(checks=[check], verify_in="same")
    assert "killed: " in ended(events).detail
    (verified,) = (one.verified for one in events if one.HasField("verified"))
    assert verified.verification.reward == 1.0, verified


async def test_an_environment_without_a_sandbox_is_refused_by_name(tmp_path: Path) -> None:
    async with program_mesh(tmp_path, ScriptedBackend([]), sandbox="desk") as mesh:
        events = await mesh.run(checks=[{"run": "true"}])
    assert failed(events)[1] == "FIELD_INVALID"
    assert "lends no sandbox 'desk'" in events[-1].failed.failure.status.message


@pytest.mark.parametrize(
    ("network", "kind"), [("open", "open"), ("none", "none"), (["localhost:8377"], "hosts")]
)
async def test_a_sandbox_without_the_gateway_is_refused_before_the_program_starts(
    tmp_path: Path, network: str | list[str], kind: str
) -> None:
    # Its key would go to what listens at the gateway's address, which is the host's own.
    script = ScriptedBackend([])
    async with program_mesh(tmp_path, script, network=network) as mesh:
        events = await mesh.run(checks=[{"run": "true"}])
    failure = events[-1].failed.failure
    assert f"the sandbox's network is '{kind}'" in failure.status.message
    assert not failure.retry_safe
    assert not any(event.HasField("program_ended") for event in events)


async def test_it_has_the_environments_tools_over_mcp(tmp_path: Path) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call |= {"params": {"name": "shell", "arguments": {"command": "echo right >done"}}}
    script = (
        "import os, urllib.request as u\n"
        "url = os.environ['ANTHROPIC_BASE_URL'] + '/mcp'\n"
        "key = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
        f"print(u.urlopen(u.Request(url, {json.dumps(call).encode()!r}, key)).read())\n"
    )
    command = ["python3", "-c", f"{script}\n{LOOP}", "{prompt}"]
    async with program_mesh(
        tmp_path, ScriptedBackend(["Done."]), command=command, mcp=True
    ) as mesh:
        events = await mesh.run(checks=[CHECK])
    (verified,) = (one.verified for one in events if one.HasField("verified"))
    assert verified.verification.reward == 1.0, ended(events)


async def test_a_function_in_the_agents_own_process(tmp_path: Path) -> None:
    script = ScriptedBackend(["42"])
    target = f"{__name__}:ask_once"
    async with program_mesh(tmp_path, script, function=target, in_process=True) as mesh:
        events = await mesh.run(checks=[{"run": "true"}])
    assert events[0].started.program.name == target
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED
    assert asked == ["42"]


async def test_a_function_of_a_file_in_the_agents_own_process(tmp_path: Path) -> None:
    (tmp_path / "their_agent.py").write_text(
        "from words_beside import ask_once\n\n\nasync def solve(prompt, url, key):\n"
        "    await ask_once(prompt, url, key)\n"
    )
    (tmp_path / "words_beside.py").write_text(f"from {__name__} import ask_once\n")
    target = f"{tmp_path}/their_agent.py:solve"
    async with program_mesh(
        tmp_path, ScriptedBackend(["43"]), function=target, in_process=True
    ) as mesh:
        events = await mesh.run(checks=[{"run": "true"}])
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED
    assert asked[-1] == "43"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("x = 1\n", "has no 'solve'"), ("def (\n", "invalid"), ("import no_such_one\n", "no_such")],
)
def test_a_file_without_the_function_is_refused_at_the_start(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "theirs.py").write_text(text)
    options = {"function": f"{tmp_path}/theirs.py:solve", "in_process": True}
    with pytest.raises(ValueError, match=problem):
        ProgramAgent(options)


asked: list[str] = []


async def ask_once(prompt: str, url: str, key: str) -> None:
    """What an author may write."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key) as client:
        message = {"role": "user", "content": prompt}
        answer = await client.chat.completions.create(model="m", messages=[message])  # type: ignore[list-item]
        asked.append(answer.choices[0].message.content or "")

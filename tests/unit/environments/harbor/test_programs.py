"""A program as the agent of a task with steps: it runs once for each of them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.compose import Objects
from gymmesh_model.backends.scripted import ScriptedBackend
from gymmesh_resource import Task
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_sandbox.config import SandboxConfig
from tests.support.optional import require
from tests.unit.environments.harbor.made_tasks import RUNNABLE, stepped_task, write_tasks
from tests.unit.programs.rollouts import AGENT, COMMAND, TIMEOUT, shell

Events = Sequence[rollout_pb2.RolloutEvent]


@asynccontextmanager
async def harbor_mesh(
    place: Path,
    tasks: Mapping[str, Mapping[str, str]],
    script: ScriptedBackend,
    **agent: Any,
) -> AsyncIterator[Any]:
    """The agent's peer of a mesh that has these tasks."""
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    folder = write_tasks(place / "tasks", tasks)
    config = MeshConfig(
        environments={
            "harbor": EnvironmentConfig(
                use="harbor",
                sandboxes={"sandbox": "boxes"},
                verify_timeout_s=120,
                options={"tasks": str(folder), "images": {"*": "host"}, "network": "agent"},
            )
        },
        sandboxes={
            "boxes": SandboxConfig(adapts=False, options={"folder": str(place / "sandboxes")})
        },
        agents={"coder": AgentConfig(use="program", **agent)},
    )
    async with embedded(config, Objects(backends={"policy": script})) as mesh:
        instance = await mesh.directory.pick(AGENT, "coder")
        yield mesh.directory.peer(instance)


async def run(peer: Any, name: str, prompt: str) -> Events:
    row = {"task_id": "t", "environment": "harbor", "harbor": name}
    task = Task.of({**row, "responses_create_params": {"input": prompt}}).message
    request = agent_pb2.RunRolloutRequest(task=task, rollout_id="r1", attempt=1)
    return [answer.event async for answer in peer.RunRollout(request, timeout=TIMEOUT)]


def of_kind(events: Events, kind: str) -> list[Any]:
    return [getattr(one, kind) for one in events if one.WhichOneof("event") == kind]


@pytest.mark.long
async def test_a_program_runs_anew_for_each_step(tmp_path: Path) -> None:
    script = ScriptedBackend(
        [shell("echo one >>done"), "One is done.", shell("echo two >>done"), "Two is done."]
    )
    tasks = {"t": stepped_task({"one": "", "two": ""})}
    options = {"command": COMMAND, "logs": str(tmp_path / "logs")}
    async with harbor_mesh(tmp_path, tasks, script, options=options, max_steps=20) as peer:
        events = await run(peer, "t", "Write one.")
    assert [one.exit_code for one in of_kind(events, "program_ended")] == [0, 0]
    turns = of_kind(events, "turn_completed")
    assert [(turn.reward, turn.done) for turn in turns] == [(1.0, False), (0.0, True)]
    calls = of_kind(events, "model_call_completed")
    assert [turn.model_call_id for turn in turns] == [calls[1].call_id, calls[3].call_id]
    # Each run begins a conversation of its own, from which the policy learns like from the first.
    assert [call.parent_call_id for call in calls] == ["", calls[0].call_id, "", calls[2].call_id]
    assert [call.trainable for call in calls] == [True] * 4
    assert len({call.actor for call in calls[:2]}) == 1
    (verified,) = of_kind(events, "verified")
    assert verified.verification.reward == 1.0
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED
    assert {one.read_text() for one in (tmp_path / "logs").iterdir()} == {
        "One is done.\n", "Two is done.\n"
    }  # fmt: skip


@pytest.mark.long
async def test_a_limit_ends_the_runs_and_all_steps_are_judged(tmp_path: Path) -> None:
    script = ScriptedBackend([shell("echo one >>done"), "Done.", shell("echo two >>done"), "Done."])
    tasks = {"t": stepped_task({"one": "", "two": "", "three": ""})}
    options = {"command": COMMAND}
    async with harbor_mesh(tmp_path, tasks, script, options=options, max_steps=3) as peer:
        events = await run(peer, "t", "Write one.")
    assert len(of_kind(events, "program_ended")) == 2
    (verified,) = of_kind(events, "verified")
    assert verified.verification.reward == pytest.approx(2 / 3)
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_MAX_STEPS


@pytest.mark.long
async def test_a_run_without_an_answer_fails_the_rollout(tmp_path: Path) -> None:
    # The second run finds what the first one left, and calls no model.
    once = 'test ! -e done || exit 0; python3 -c "$LOOP" {prompt}'
    script = ScriptedBackend([shell("echo one >>done"), "Done."])
    options = {"command": once, "env": {"LOOP": COMMAND[2]}}
    tasks = {"t": stepped_task({"one": "", "two": ""})}
    async with harbor_mesh(tmp_path, tasks, script, options=options) as peer:
        events = await run(peer, "t", "Write one.")
    failure = events[-1].failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_PROGRAM


@pytest.mark.long
async def test_a_task_without_steps_is_one_run(tmp_path: Path) -> None:
    script = ScriptedBackend([shell("echo hello >hello.txt"), "Done."])
    options = {"command": COMMAND}
    tasks = {"t": dict(RUNNABLE["text"])}
    async with harbor_mesh(tmp_path, tasks, script, options=options) as peer:
        events = await run(peer, "t", "Write hello.")
    assert len(of_kind(events, "program_ended")) == 1
    (verified,) = of_kind(events, "verified")
    assert verified.verification.reward == 1.0
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED

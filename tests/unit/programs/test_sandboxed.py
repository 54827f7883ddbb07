"""A program's run in a real sandbox: how it ends, what it leaves, and what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gymmesh.sandbox.v1 import process_pb2
from gymmesh_agent.programs.ends import ProgramEnd
from gymmesh_agent.programs.options import ProgramOptions
from gymmesh_agent.programs.sandboxed import ProgramTask, program_version, run_in_sandbox
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox_access import SandboxClient, SandboxHandle, SandboxSpec
from gymmesh_sandbox_access.leftovers import running
from tests.support.bubblewrap_sandboxes import bubblewrap_sandbox
from tests.support.optional import require
from tests.support.sandboxes import serve_sandboxes

KEY = "sk-gymmesh-0123456789abcdefghij"
TASK = ProgramTask(prompt="Do 'it'.", url="http://127.0.0.1:1", name="run/t 1/1")


@dataclass
class Gateway:
    """The gateway of a rollout, which the test stops."""

    key: str = KEY
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    is_awaited: bool = False


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[SandboxHandle]:
    async with bubblewrap_sandbox(tmp_path, SandboxSpec(memory_mb=256)) as made:
        yield made


async def ran(
    sandbox: SandboxHandle, command: Any, gateway: Gateway | None = None, **options: Any
) -> ProgramEnd:
    made = ProgramOptions(command=command, **options)
    return await run_in_sandbox(sandbox, made, TASK, gateway or Gateway(), lambda: 1)


async def test_it_has_the_prompt_a_home_and_the_gateway(sandbox: SandboxHandle) -> None:
    script = (
        'echo "$1"; test "$HOME" != /root && test -d "$TMPDIR" && test -w "$HOME" && '
        'test "$OPENAI_API_KEY" && cat "$HOME/.settings" && pwd && read -r line || echo no input'
    )
    end = await ran(
        sandbox,
        ["/bin/sh", "-c", script, "agent", "{prompt}"],
        files={"{home}/.settings": "{url} {model}\n"},
    )
    workdir = (await sandbox.about()).sandbox.workdir
    said = f"Do 'it'.\nhttp://127.0.0.1:1 policy\n{workdir}\nno input\n"
    assert end.output_tail.decode() == said
    assert (end.cause, end.exit_code, end.left) == (process_pb2.EXIT_CAUSE_EXITED, 0, ())


async def test_its_key_is_in_no_output(sandbox: SandboxHandle, tmp_path: Path) -> None:
    end = await ran(sandbox, 'echo "key: $OPENAI_API_KEY" >&2', logs=str(tmp_path / "logs"))
    assert end.output_tail == b"key: ***\n"
    assert (tmp_path / "logs" / "run_t_1_1.log").read_bytes() == b"key: ***\n"


@pytest.mark.parametrize(
    ("command", "cause", "exit_code", "signal"),
    [
        ("exit 0", process_pb2.EXIT_CAUSE_EXITED, 0, 0),
        ("exit 3", process_pb2.EXIT_CAUSE_EXITED, 3, 0),
        (["no-such-program"], process_pb2.EXIT_CAUSE_EXITED, 127, 0),
        (["/etc/passwd"], process_pb2.EXIT_CAUSE_EXITED, 126, 0),
        ("kill -9 $$", process_pb2.EXIT_CAUSE_SIGNALED, None, 9),
        ("kill -SEGV $$", process_pb2.EXIT_CAUSE_SIGNALED, None, 11),
        ("sleep 100", process_pb2.EXIT_CAUSE_TIMED_OUT, None, 9),
    ],
)
async def test_how_it_ended(
    sandbox: SandboxHandle, command: Any, cause: int, exit_code: int | None, signal: int
) -> None:
    end = await ran(sandbox, command, timeout_s=1.0 if command == "sleep 100" else 60.0)
    assert (end.cause, end.exit_code) == (cause, exit_code)
    assert end.signal == signal or cause == process_pb2.EXIT_CAUSE_TIMED_OUT


async def test_the_kernel_kills_it_at_the_sandboxs_memory(sandbox: SandboxHandle) -> None:
    resources = (await sandbox.about()).sandbox.resources
    require(resources.memory_bytes, "control groups", "run where control groups can be used")
    end = await ran(sandbox, ["python3", "-c", "x = bytearray(1 << 30)"])
    assert end.cause == process_pb2.EXIT_CAUSE_OUT_OF_MEMORY
    assert end.detail == "killed at the sandbox's memory limit"


async def test_what_it_leaves_is_killed_and_counted(sandbox: SandboxHandle) -> None:
    server = await sandbox.start("sleep 1000")  # of the environment's set-up
    before = await running(sandbox)
    script = (
        "sleep 1000 >/dev/null 2>&1 & setsid sleep 1001 >/dev/null 2>&1 & "
        "env -i /bin/sh -c 'sleep 1002 & sleep 1003' >/dev/null 2>&1 & sleep 0.2"
    )
    end = await ran(sandbox, script)
    assert end.exit_code == 0
    assert end.left.count("sleep") == 4
    assert "killed: " in end.detail
    assert (await running(sandbox)).processes == before.processes
    assert not (await server.status()).HasField("exit")


async def test_it_is_killed_when_its_rollout_is_over(
    sandbox: SandboxHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_agent.programs.sandboxed._GRACE_S", 0.1)
    gateway = Gateway()
    gateway.stopped.set()
    end = await ran(sandbox, "sleep 1000", gateway)
    assert end.signal == 9


async def test_a_sandbox_that_is_lost_is_an_error(sandbox: SandboxHandle) -> None:
    work = asyncio.create_task(ran(sandbox, "sleep 1000"))
    while not (await running(sandbox)).processes:  # noqa: ASYNC110  # nothing announces it
        await asyncio.sleep(0.05)
    await sandbox.end()
    with pytest.raises(MeshError) as lost:
        await work
    assert lost.value.reason_name in ("SANDBOX_LOST", "SANDBOX_NOT_FOUND")


@pytest.mark.parametrize("place", ["agents", "agents.py", "./agents.py", "own/agents.py"])
async def test_a_function_runs_in_the_sandbox(sandbox: SandboxHandle, place: str) -> None:
    module = (
        "from dataclasses import dataclass\n"
        "from beside import GREETING\n"
        "@dataclass\n"
        "class State:\n"
        "    text: 'str'\n"
        "class Graph:\n"
        "    async def ainvoke(self, state):\n"
        "        print(state['messages'][0]['content'])\n"
        "graph = Graph()\n"
        "async def solve(prompt, url, **others):\n"
        "    print(prompt, url, sorted(others))\n"
        "def plain(model):\n"
        "    return model\n"
    )
    folder = "own/" if "own" in place else ""
    await sandbox.files.write(f"{folder}agents.py", module)
    await sandbox.files.write(f"{folder}beside.py", "GREETING = 'hello'\n")
    said = {
        "solve": "Do 'it'. http://127.0.0.1:1 ['key', 'model', 'workdir']\n",
        "plain": "policy\n",
        "graph": "Do 'it'.\n",
    }
    for name, wanted in said.items():
        options = ProgramOptions(function=f"{place}:{name}")
        end = await run_in_sandbox(sandbox, options, TASK, Gateway(), lambda: 1)
        assert end.output_tail.decode() == wanted
    missing = ProgramOptions(function=f"{place}:nope")
    end = await run_in_sandbox(sandbox, missing, TASK, Gateway(), lambda: 1)
    assert (end.exit_code, end.output_tail.decode()) == (127, f"{place} has no function nope\n")


async def test_a_programs_version_is_what_it_says(sandbox: SandboxHandle) -> None:
    script = b"#!/bin/sh\necho codex-cli 1.2.3-beta.4\n"
    await sandbox.files.write("/opt/bin/codex", script, mode=0o755, user="root")
    options = ProgramOptions(program="codex", path=["/opt/bin"])
    assert await program_version(sandbox, options) == "1.2.3-beta.4"
    assert await program_version(sandbox, ProgramOptions(program="qwen-code")) == ""
    assert await program_version(sandbox, ProgramOptions(command="codex")) == ""


async def test_processes_of_the_machine_are_never_seen(tmp_path: Path) -> None:
    """In a backend whose programs are plain processes of this machine."""
    directory = PeerDirectory()
    async with (
        serve_sandboxes(tmp_path, directory),
        SandboxClient(directory, "boxes") as client,
    ):
        handle = await client.create(SandboxSpec())
        assert not (await running(handle)).processes

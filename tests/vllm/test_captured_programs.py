"""Programs that people ship, over a real vLLM: their calls are captured and trained token by token.

The server's answers are forced to scripted ones, since no model so small writes these programs'
tool calls; everything else is vLLM's own. A program that is not installed is skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh.model.v1 import tokens_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_client.rollout import is_learned
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_model import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_trainers import Rollout, TrainerCollector
from tests.support.optional import require
from tests.vllm.conftest import COMMON, ROOT, WEIGHTS
from tests.vllm.programs.recording import RecordingProxy
from tests.vllm.programs.scripts import (
    MAIN,
    STEPS,
    SUBMIT,
    ProgramScript,
    Step,
    appended,
    shell,
    sub_agent,
    told_at_length,
    wait,
)
from tests.vllm.programs.trained import (
    continues_or_says_why,
    equals_the_log,
    trains_each_token_once,
)
from tests.vllm.serving import free_port, running
from tests.vllm.tiny import make_long

FOLDER: Final = Path(os.environ.get("GYMMESH_TEST_PROGRAMS_FOLDER") or ROOT / ".cache" / "programs")
PROGRAMS: Final = ("claude-code", "codex", "mini-swe-agent")
CONTEXT: Final = 131_072
ARGS: Final = [
    *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "8"),
    *COMMON[COMMON.index("--enable-auto-tool-choice") :],
    *("--logits-processors", "tests.vllm.programs.forced:ForcedAnswers", "--enforce-eager"),
]
# A copied interpreter looks for its library where it was built.
_LIBRARY: Final = next(iter(FOLDER.glob("python*/lib/libpython*.so")), None)
VARIABLES: Final = {} if _LIBRARY is None else {"LD_LIBRARY_PATH": str(_LIBRARY.parent)}
LINES: Final = [f"line {number}" for number in range(1, STEPS + 1)]


@dataclass(frozen=True)
class ForcedServer:
    """A running `vllm serve` whose answers can be forced."""

    url: str
    folder: Path


def installed(program: str) -> bool:
    return (FOLDER / program / "bin").exists()


def how_to_install(*programs: str) -> str:
    return f'make test-programs PROGRAMS="{" ".join(programs)}" TASKS=1 installs them'


@pytest.fixture(scope="module")
def server(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForcedServer]:
    require(any(map(installed, PROGRAMS)), "coding agents", how_to_install(*PROGRAMS))
    folder = tmp_path_factory.mktemp("long")
    make_long(folder, WEIGHTS)
    port = free_port()
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(folder), *ARGS]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    env = {**environment, "PYTHONPATH": str(ROOT)}
    with running(command, f"http://127.0.0.1:{port}/health", folder / "log", env):
        yield ForcedServer(f"http://127.0.0.1:{port}/v1", folder)


async def ran(
    server: ForcedServer,
    place: Path,
    script: ProgramScript,
    files: Mapping[str, Sequence[str]],
    **options: Any,
) -> tuple[Rollout, RecordingProxy]:
    """A rollout of a program; files: what it has to write, by name, as lines."""
    import transformers

    program = options["program"]
    require(installed(program), program, how_to_install(program))
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(server.folder)
    checks = [
        {"name": name, "run": f'test "$(cat {name})" = "{chr(10).join(lines)}"'}
        for name, lines in files.items()
    ]
    task = {
        "task_id": program,
        "prompt": f"{MAIN}: append lines to the file log.txt, as you are told, step by step.",
        "checks": checks,
        "verify_in": "same",
    }
    async with RecordingProxy(server.url, tokenizer, script) as proxy:
        config = MeshConfig(
            models={
                "policy": ModelConfig(
                    backend="vllm", url=proxy.url, model=str(server.folder), timeout_s=600
                )
            },
            sandboxes={
                "boxes": SandboxConfig(
                    adapts=False, options={"folder": str(place / "boxes"), "binds": [str(FOLDER)]}
                )
            },
            environments={
                "workspace": EnvironmentConfig(
                    use="workspace", sandboxes={"sandbox": "boxes"}, verify_timeout_s=120
                )
            },
            agents={
                "coder": AgentConfig(
                    use="program",
                    max_steps=60,
                    max_wall_s=1800,
                    options={
                        "path": [str(FOLDER / program / "bin")],
                        "logs": str(place / "logs"),
                        **options,
                    },
                )
            },
            defaults=Defaults(environment="workspace", agent="coder"),
        )
        async with TrainerCollector(config, max_attempts=1, timeout_s=1800) as collector:
            rollout = await collector.one(task)
        assert isinstance(rollout, Rollout), (rollout, _log(place))
        assert rollout.reward == 1.0, (rollout, rollout.components, script.kinds, _log(place))
        return rollout, proxy


def _log(place: Path) -> str:
    """The end of what the program wrote."""
    return "".join(one.read_text(errors="replace")[-3000:] for one in place.glob("logs/*"))


def captured(rollout: Rollout, proxy: RecordingProxy) -> Counter[str]:
    """All that holds of a captured rollout; its links and reasons."""
    equals_the_log(rollout, proxy.log)
    trains_each_token_once(rollout)
    return continues_or_says_why(rollout)


async def test_mini_swe_agent_works_for_ten_steps(server: ForcedServer, tmp_path: Path) -> None:
    steps: list[Step] = [appended(number) for number in range(1, STEPS)]
    steps.append(shell(f"echo line {STEPS} >>log.txt; {SUBMIT}"))
    script = ProgramScript(steps)
    rollout, proxy = await ran(
        server, tmp_path, script, {"log.txt": LINES}, program="mini-swe-agent", env=VARIABLES
    )
    found = captured(rollout, proxy)
    assert script.kinds == ["main"] * STEPS
    # Each prompt goes on from the tokens before it: one sequence, whatever the program respelled.
    assert found == {"CONTINUATION": STEPS}
    assert len(rollout.samples) == 1


def with_sub_agent_and_compaction(*waiting: Step) -> list[Step]:
    """Ten lines; a sub-agent starts after the second, and the sixth comes with much output.
    waiting: what a program has to do until the sub-agent has ended.
    """
    return [
        *map(appended, range(1, 3)), sub_agent, *waiting, *map(appended, range(3, 6)),
        told_at_length(6), *map(appended, range(7, STEPS + 1)),
    ]  # fmt: skip


def has_sub_agent_and_compaction(rollout: Rollout, script: ProgramScript) -> None:
    """The tree has the parts that the program made, each trained."""
    calls = rollout.message.model_calls
    kinds = Counter(script.kinds)
    assert kinds["main"] > STEPS
    assert kinds["compaction"] >= 1
    assert kinds["sub"] == 2
    assert kinds["beside"] == sum(bool(call.side_call) for call in calls)
    begun = [one for one in calls if one.fork.reason == tokens_pb2.FORK_REASON_COMPACTION]
    assert len(begun) == kinds["compaction"]
    assert {one.actor for one in begun} == {""}
    of_subagent = [one for one in calls if one.actor == "subagent-1"]
    assert len(of_subagent) == 2
    assert {one.actor for one in calls if is_learned(one)} == {"", "subagent-1"}


async def test_codex_compacts_and_has_a_sub_agent(server: ForcedServer, tmp_path: Path) -> None:
    script = ProgramScript(with_sub_agent_and_compaction(wait))
    files = {"log.txt": LINES, "sub.txt": ["sub"]}
    arguments = ["-c", "features.multi_agent=true", "-c", "model_auto_compact_token_limit=15000"]
    rollout, proxy = await ran(
        server, tmp_path, script, files, program="codex", arguments=arguments
    )
    captured(rollout, proxy)
    has_sub_agent_and_compaction(rollout, script)


async def test_claude_code_compacts_and_has_a_sub_agent(
    server: ForcedServer, tmp_path: Path
) -> None:
    script = ProgramScript(with_sub_agent_and_compaction())
    files = {"log.txt": LINES, "sub.txt": ["sub"]}
    env = {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "60000"}
    rollout, proxy = await ran(server, tmp_path, script, files, program="claude-code", env=env)
    captured(rollout, proxy)
    has_sub_agent_and_compaction(rollout, script)

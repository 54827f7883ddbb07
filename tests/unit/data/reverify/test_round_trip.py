"""A stored row gives its verifier what the live rollout gave it, and so the same verdict.

Over every environment on the shelf that judges without the live session, with its own example
tasks: rollouts are collected in a real mesh, and judged again from their rows.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gymmesh.verify.v1 import verify_pb2
from gymmesh_client import (
    CollectOptions,
    Collector,
    OpenOptions,
    OutputFiles,
    RunIdentity,
    RunOutput,
    TaskDefaults,
    TaskFile,
    TaskReader,
    open_run,
)
from gymmesh_data.reverify import Source, VerdictChanges, Verifiers, evidence_keys, reverify
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.verifying import embedded_environments
from gymmesh_resource.environment import Environment
from gymmesh_resource.registry import make_environment
from gymmesh_resource.serving import VerifyServicer
from gymmesh_responses import loads
from gymmesh_runtime.config import load_config
from tests.support.docs import ROOT

pytestmark = pytest.mark.long

SHELF = ROOT / "services/resource/gymmesh_resource/environments"
LIVE = {"game", "user_simulator", "nemo_gym", "workspace"}
NAMES = sorted(path.parent.name for path in SHELF.glob("*/tasks.jsonl"))
JUDGED = [name for name in NAMES if name not in LIVE]
TOOL_SERVER = ROOT / "tests/unit/environments/mcp/tool_server.py"
EXTRAS = {"mcp": "mcp", "reasoning_gym": "reasoning_gym", "math": "math_verify"}
# As few processes as will do.
OPTIONS: dict[str, dict[str, Any]] = {
    "math": {"judge": True, "judge_workers": 1},
    "reasoning_gym": {"score_workers": 1},
    "mcp": {
        "shared": True,
        "servers": {"one": {"command": [sys.executable, str(TOOL_SERVER), "stdio"]}},
        "verdict": "contains",
    },
    "web_search": {"judge": True},
}


def right(task: dict[str, Any]) -> list[Any]:
    """Answers that some verifier may like, by what the task expects."""
    calls = task.get("ground_truth") or task.get("expected_answers")
    if isinstance(calls, list) and calls and isinstance(calls[0], dict):
        items = [
            {
                "type": "function_call",
                "call_id": f"call_{place}",
                "name": call.get("name", "none"),
                "arguments": call["arguments"]
                if isinstance(call.get("arguments"), str)
                else json.dumps(call.get("arguments", {})),
            }
            for place, call in enumerate(calls)
        ]
        return [{"output": items}, {"text": "Done."}]
    expected = str(task.get("expected_answer", task.get("answer", "none")))
    program = "```python\ninput()\nprint(sum(map(int, input().split())))\n```"
    return [{"text": f"{program}\n<answer>{expected}</answer>\n\\boxed{{{expected}}}"}]


def asked(task: dict[str, Any]) -> str:
    """The last user message of a task."""
    said = task["responses_create_params"]["input"]
    if isinstance(said, str):
        return said
    content = [item["content"] for item in said if item.get("role") == "user"][-1]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def recording(folder: Path, tasks: list[dict[str, Any]]) -> Path:
    """Two repeats of each task: one that may be right, and one that is wrong."""
    rows: list[dict[str, Any]] = []
    for text in {asked(task): task for task in tasks}:
        task = next(one for one in tasks if asked(one) == text)
        rows.append({"match": text, "repeat": 0, "answers": right(task)})
        rows.append({"match": text, "repeat": 1, "answers": [{"text": "I do not know."}]})
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What verifiers were asked, by rollout, in order."""
    seen: dict[str, list[Any]] = {}
    judge = VerifyServicer.Verify

    async def noted(self: Any, request: verify_pb2.VerifyRequest, context: Any) -> Any:
        kept = verify_pb2.VerifyRequest()
        kept.CopyFrom(request)
        seen.setdefault(request.rollout_id, []).append(kept)
        return await judge(self, request, context)

    monkeypatch.setattr(VerifyServicer, "Verify", noted)
    return seen


def config_of(folder: Path, name: str, tasks: list[dict[str, Any]]) -> MeshConfig:
    judge = folder / "judge.jsonl"
    judge.write_text('{"match": "*", "answers": [{"text": "[[A=B]]\\n[[YES]]\\n[[7]]"}]}\n')
    config = {
        "models": {
            "policy": {"backend": "replay", "path": str(recording(folder, tasks))},
            "judge": {"backend": "replay", "path": str(judge)},
        },
        "environments": {name: {"use": name, "options": OPTIONS.get(name, {})}},
        "defaults": {"environment": name},
    }
    file = folder / "mesh.yaml"
    file.write_text(json.dumps(config))
    return load_config([file], [], MeshConfig)


async def again(config: MeshConfig, name: str, path: Path, output: Path) -> VerdictChanges:
    """The verdicts on stored rollouts."""
    async with embedded_environments(config, [name]) as directory:
        source = Source([path])
        into = RunOutput.open(OutputFiles(output), RunIdentity("t", "c"), OpenOptions(repeats=2))
        return await reverify(source, Verifiers(directory), into)


def comparable(request: verify_pb2.VerifyRequest) -> Any:
    task = request.task
    return (
        [item.SerializeToString(deterministic=True) for item in request.transcript],
        request.stop_reason,
        request.attempt,
        (task.task_id, task.environment, dict(task.tags)),
        [item.SerializeToString(deterministic=True) for item in task.params.input],
        task.params.input_text,
    )


def keys_of(tasks: list[dict[str, Any]]) -> set[str]:
    return {key for task in tasks for key in task}


def settled(verification: dict[str, Any]) -> dict[str, Any]:
    """A verdict without times and provenance."""
    left_out = ("stages", "reverified", "previous")
    kept = {key: value for key, value in verification.items() if key not in left_out}
    kept["stages"] = [stage["name"] for stage in verification["stages"]]
    return kept


def test_the_environments_that_need_the_live_session_are_these() -> None:
    def needs(name: str) -> bool:
        options = OPTIONS.get(name, {})
        environment = make_environment(name, options)
        kind, needed = type(environment), environment.verify_needs_session
        has_state = kind.state is not None or kind.create_state is not Environment.create_state
        return has_state if needed is None else needed

    # nemo_gym judges at a server elsewhere, which alone knows its sessions.
    known = [name for name in NAMES if not (name in EXTRAS and find_spec(EXTRAS[name]) is None)]
    assert {name for name in known if name != "nemo_gym" and needs(name)} == LIVE - {"nemo_gym"}


@pytest.mark.parametrize("name", JUDGED)
async def test_a_stored_row_gives_the_live_verdict(
    name: str, tmp_path: Path, requests: dict[str, list[Any]]
) -> None:
    if name in EXTRAS and find_spec(EXTRAS[name]) is None:
        pytest.skip(f"{EXTRAS[name]} is not installed")
    file = SHELF / name / "tasks.jsonl"
    tasks = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    config = config_of(tmp_path, name, tasks)
    path = tmp_path / "rollouts.jsonl"
    output = RunOutput.open(OutputFiles(path), RunIdentity.of(file, {}), OpenOptions(repeats=2))
    async with embedded(config) as mesh:
        collector = Collector(mesh.agents.connect, output, CollectOptions(repeats=2))
        tally = await collector.run(TaskFile(TaskReader(TaskDefaults(name, "tool_loop")), file))
    assert (tally.completed, tally.failed) == (2 * len(tasks), 0), tally.first_failure
    with open_run(path) as run:
        live = {row["rollout_id"]: row for row in run.rows()}

    from_file = await again(config, name, path, tmp_path / "from_file.jsonl")
    OutputFiles(path).run.unlink()  # which says what the task file was
    from_rows = await again(config, name, path, tmp_path / "from_rows.jsonl")
    for changes in (from_file, from_rows):
        assert (changes.judged, changes.changed, changes.failed) == (len(live), 0, 0)
    assert requests.keys() == live.keys()
    for asked_three_times in requests.values():
        first, second, third = asked_three_times
        assert comparable(first) == comparable(second) == comparable(third)
        payload = loads(first.task.payload_json)
        assert loads(second.task.payload_json) == payload
        from_row = loads(third.task.payload_json)
        assert payload.items() <= from_row.items()
        # Evidence that has the name of a key of other tasks says the same as the key would.
        more = from_row.keys() - payload.keys()
        assert more <= keys_of(tasks)
        evidence = live[first.rollout_id]["verification"]["evidence"]
        assert all(from_row[key] == evidence[key] for key in more)
    for judged in ("from_file", "from_rows"):
        for row in map(json.loads, (tmp_path / f"{judged}.jsonl").read_text().splitlines()):
            was = live[row["rollout_id"]]["verification"]
            assert row["verification"]["previous"] == [was]
            assert settled(row["verification"]) == settled(was)
            # But for the verdict and its provenance the row is what it was.
            other = ("verification", "reward")
            assert {key: row[key] for key in row if key not in other} == {
                key: value for key, value in live[row["rollout_id"]].items() if key not in other
            }
    # Their evidence is told from the tasks' keys by its place alone.
    for row in live.values():
        payload = loads(requests[row["rollout_id"]][0].task.payload_json)
        assert not evidence_keys(row) & payload.keys()

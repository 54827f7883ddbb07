"""Our environments as a verifiers taskset: the verdicts of our own agent, right and wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gymmesh_mesh import MeshConfig, up
from gymmesh_resource import Environment, Expected, Task
from gymmesh_resource.expected import as_list
from gymmesh_resource.registry import example_rows, make_environment
from gymmesh_runtime.config import load_config
from tests.bridges.verifiers.runs import own_runs
from tests.support import endpoint as fake
from tests.support.cli import gym, rows_of
from tests.support.endpoint import FakeEndpoint, Seen

# The shelf but for what needs another side, a sandbox, or models of its own.
SHELF: Final = (
    "calendar", "code", "function_calling", "game", "instruction_following", "math", "mcqa",
    "reasoning_gym", "sql", "string_match", "structured_outputs", "web_search", "workplace",
)  # fmt: skip
_EXAMPLES: Final = 3
_STEPS: Final = 12
_CHAT: Final = {
    "agent": {
        "harness": {"id": "chat_harness"},
        "runtime": {"type": "subprocess"},
        "max_turns": _STEPS,
    }
}
Policy = Callable[[Seen], fake.Send]


def _rows(name: str) -> tuple[list[dict[str, Any]], dict[str, Expected]]:
    """Some example tasks, and right answers by the task's prompt."""
    environment: Environment[Any] = make_environment(name, {})
    rows, right = [], {}
    for number, row in enumerate(example_rows(environment)):
        if number == _EXAMPLES:
            break
        rows.append({**row, "task_id": f"{name}-{number}"})
        for expected in as_list(environment.expected(Task.of(rows[-1])))[:1]:
            right[_prompt(_messages(row))] = expected
    return rows, right


def _messages(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = (
        row["responses_create_params"]["input"]
        if "responses_create_params" in row
        else row["prompt"]
    )
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _prompt(messages: Sequence[Mapping[str, Any]]) -> str:
    """The texts of the user before the model's first answer."""
    texts = []
    for message in messages:
        if message["role"] == "assistant":
            break
        if message["role"] == "user":
            content = message["content"]
            parts = (
                [content]
                if isinstance(content, str)
                else [part.get("text", "") for part in content]
            )
            texts.append("".join(parts))
    return "\n".join(texts)


def _right(expected: Mapping[str, Expected]) -> Policy:
    def answer(seen: Seen) -> fake.Send:
        messages = seen.body["messages"]
        prompt = _prompt(messages)
        found = next((one for key, one in expected.items() if prompt.startswith(key)), None)
        if found is None:
            return fake.text("I don't know.")
        made = sum(message["role"] == "assistant" for message in messages)
        if made < len(found.calls):
            name, arguments = found.calls[made]
            return fake.answer(calls=[(f"call_{made}", name, json.dumps(arguments))])
        return fake.text(found.message or "Done.")

    return answer


def _wrong(seen: Seen) -> fake.Send:
    return fake.text("I don't know.")


async def test_verdicts_are_those_of_our_own_agent(bridge_python: Path, tmp_path: Path) -> None:
    environments = {name: {"use": name} for name in SHELF}
    config = {
        "environments": environments,
        "agents": {"tool_loop": {"max_steps": _STEPS}},
        "defaults": {"environment": SHELF[0]},
    }
    (tmp_path / "mesh.json").write_text(json.dumps(config))
    made = {name: _rows(name) for name in SHELF}
    for name, (rows, _) in made.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    right = {key: one for _, expected in made.values() for key, one in expected.items()}
    loaded = load_config([tmp_path / "mesh.json"], [], MeshConfig)
    async with (
        FakeEndpoint(default=_right(right)) as good,
        FakeEndpoint(default=_wrong) as bad,
        up(loaded) as mesh,
    ):
        runs = [
            {
                "env": _env(tmp_path, name, mesh.address_of("environment", name)),
                "url": endpoint.url,
                "output": str(tmp_path / "own"),
            }
            for name in SHELF
            for endpoint in (good, bad)
        ]
        theirs = await own_runs(bridge_python, runs)
        ours = {
            kind: await _collected(tmp_path, kind, endpoint.url)
            for kind, endpoint in (("good", good), ("bad", bad))
        }
    problems = []
    for number, scored in enumerate(theirs):
        name, kind = SHELF[number // 2], ("good", "bad")[number % 2]
        if isinstance(scored, str):
            problems.append(f"{name} {kind}: {scored}")
            continue
        wanted = {key: one for key, one in ours[kind].items() if key.startswith(f"{name}-")}
        found = {one["name"]: one["reward"] if one["ok"] else one["errors"] for one in scored}
        if found != wanted:
            problems.append(f"{name} {kind}: {found}, and ours {wanted}")
    assert not problems, "\n".join(problems)
    # Right answers win, so that the equality says something.
    assert sum(ours["good"].values()) > sum(ours["bad"].values()) + len(SHELF)


def _env(folder: Path, name: str, address: str) -> dict[str, Any]:
    taskset = {"id": "gymmesh-taskset", "place": address, "environment": name}
    return {**_CHAT, "taskset": {**taskset, "tasks": str(folder / f"{name}.jsonl")}}


async def _collected(folder: Path, kind: str, url: str) -> dict[str, float]:
    """The rewards of our own agent, by the task's id."""
    (folder / "all.jsonl").write_text(
        "".join(
            json.dumps({**json.loads(line), "environment": name}) + "\n"
            for name in SHELF
            for line in (folder / f"{name}.jsonl").read_text().splitlines()
        )
    )
    output = folder / f"{kind}.jsonl"
    done = await gym(
        "collect", "--config", folder / "mesh.json", "-i", folder / "all.jsonl", "-o", output,
        "--model-url", url, "--model", "policy", "--set", "models.policy.backend=chat", "--quiet",
    )  # fmt: skip
    assert done.code == 0, done.err
    return {row["task_id"]: row["reward"] for row in rows_of(output)}

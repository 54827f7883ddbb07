"""Our environments as a verifiers taskset: the verdicts of our own agent, right and wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
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
_KINDS: Final = ("right", "wrong")


def _rows(name: str) -> tuple[list[dict[str, Any]], dict[str, Expected]]:
    """Some example tasks, each to be answered right and wrong; right answers by their prompt."""
    environment: Environment[Any] = make_environment(name, {})
    rows, right = [], {}
    for number, row in enumerate(islice(example_rows(environment), _EXAMPLES)):
        for expected in as_list(environment.expected(Task.of(row)))[:1]:
            right[_prompt(_messages(row))] = expected
        for kind in _KINDS:
            told = {"role": "system", "content": f"Answer {kind}."}
            rows.append(
                {
                    **{key: value for key, value in row.items() if key != "prompt"},
                    "task_id": f"{name}-{number}-{kind}",
                    "responses_create_params": {
                        **row.get("responses_create_params", {}),
                        "input": [told, *_messages(row)],
                    },
                }
            )
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


def _policy(expected: Mapping[str, Expected]) -> Callable[[Seen], fake.Send]:
    def answer(seen: Seen) -> fake.Send:
        messages = seen.body["messages"]
        prompt = _prompt(messages)
        found = next((one for key, one in expected.items() if prompt.startswith(key)), None)
        if found is None or "Answer wrong." in str(messages[:3]):
            return fake.text("I don't know.")
        made = sum(message["role"] == "assistant" for message in messages)
        if made < len(found.calls):
            name, arguments = as_call(found.calls[made])
            return fake.answer(calls=[(f"call_{made}", name, json.dumps(arguments))])
        return fake.text(found.message or "Done.")

    return answer


def as_call(call: Any) -> tuple[str, Mapping[str, Any]]:
    """Name and arguments."""
    return call[0], call[1]


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
    async with FakeEndpoint(default=_policy(right)) as endpoint, up(loaded) as mesh:
        runs = [
            {
                "env": _env(tmp_path, name, mesh.address_of("environment", name)),
                "url": endpoint.url,
                "output": str(tmp_path / "own"),
            }
            for name in SHELF
        ]
        theirs = await own_runs(bridge_python, runs)
        ours = await _collected(tmp_path, endpoint.url)
    problems = []
    for name, scored in zip(SHELF, theirs, strict=True):
        wanted = {key: one for key, one in ours.items() if key.startswith(f"{name}-")}
        if isinstance(scored, str):
            problems.append(f"{name}: {scored}")
            continue
        found = {one["name"]: one["reward"] if one["ok"] else one["errors"] for one in scored}
        if found != wanted:
            problems.append(f"{name}: {found}, and ours {wanted}")
    assert not problems, "\n".join(problems)
    # Right answers win, so that the equality says something.
    won = {kind: sum(one for key, one in ours.items() if key.endswith(kind)) for kind in _KINDS}
    assert won["right"] > won["wrong"] + len(SHELF), won


def _env(folder: Path, name: str, address: str) -> dict[str, Any]:
    taskset = {"id": "gymmesh-taskset", "place": address, "environment": name}
    return {**_CHAT, "taskset": {**taskset, "tasks": str(folder / f"{name}.jsonl")}}


async def _collected(folder: Path, url: str) -> dict[str, float]:
    """The rewards of our own agent, by the task's id."""
    (folder / "all.jsonl").write_text(
        "".join(
            json.dumps({**json.loads(line), "environment": name}) + "\n"
            for name in SHELF
            for line in (folder / f"{name}.jsonl").read_text().splitlines()
        )
    )
    output = folder / "rollouts.jsonl"
    models = {"models": {"policy": {"backend": "chat", "url": url, "model": "policy"}}}
    (folder / "models.json").write_text(json.dumps(models))
    done = await gym(
        "collect", "--config", folder / "mesh.json", "--config", folder / "models.json",
        "-i", folder / "all.jsonl", "-o", output, "--quiet",
    )  # fmt: skip
    assert done.code == 0, done.err
    return {row["task_id"]: row["reward"] for row in rows_of(output)}

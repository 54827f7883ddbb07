"""Models that an environment calls: whose calls they are, how long they may take, what they cost.

Everything is real, in one process, and answers from recordings; the model service's method is
watched, not replaced.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymmesh_cli.main import cli
from gymmesh_model.service import ModelService
from gymmesh_resource.model_access import client, metrics

Row = dict[str, Any]
VERIFY_S, TURN_S = 27.0, 91.0

ENVIRONMENT = '''
from gymmesh_resource import Environment, Turn, Verdict, tool

class Talk(Environment[dict]):
    """A simulated user asks back once, a tool asks an expert, a judge decides."""
    models = ("user", "judge")
    state = dict

    @tool
    async def expert(self, session) -> str:
        """Ask an expert."""
        return (await session.ask("judge", "expert?")).text

    async def next_turn(self, session, new):
        if session.state.get("asked"):
            return Turn(done=True)
        session.state["asked"] = True
        return Turn((await session.ask("user", "what next?")).text)

    async def verify(self, session, rollout):
        answers = [await session.ask("judge", f"{n}: {rollout.text}") for n in range(2)]
        return Verdict(float(all(answer.text == "yes" for answer in answers)))

class Together(Environment[None]):
    """Judges the repeats of a task together, and asks for each; a tool asks, too."""
    models = ("judge",)

    @tool
    async def expert(self, session) -> str:
        """Ask an expert."""
        return (await session.ask("judge", "expert?")).text

    async def verify_group(self, task, members):
        return [
            float((await one.rollout.ask("judge", one.rollout.text)).text == "yes")
            for one in members
        ]
'''
CALL = {"type": "function_call", "name": "expert", "arguments": "{}", "call_id": "c1"}
USED = {"usage": {"input_tokens": 100, "output_tokens": 9, "total_tokens": 109}}
POLICY: list[Row] = [
    {"match": "talk", "answers": [{"output": [CALL], **USED}, {"text": "a"}, {"text": "b"}]},
    {"match": "*", "answers": [{"text": "a"}]},
]


def said(text: str, into: int, out: int) -> dict[str, Any]:
    usage = {"input_tokens": into, "output_tokens": out, "total_tokens": into + out}
    return {"match": "*", "answers": [{"text": text, "usage": usage}]}


@dataclass(frozen=True)
class Seen:
    """A call that reached a model service."""

    model: str
    rollout_id: str
    remaining_s: float


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    seen: list[Seen] = []
    real = ModelService.CreateResponse

    async def watched(self: ModelService, request: Any, context: Any) -> Any:
        seen.append(Seen(self.name, request.rollout_id, context.time_remaining()))
        return await real(self, request, context)

    monkeypatch.setattr(ModelService, "CreateResponse", watched)
    return seen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.py").write_text(ENVIRONMENT)
    recordings: dict[str, list[Row]] = {
        "policy": POLICY,
        "referee": [said("yes", 30, 2)],
        "customer": [said("go on", 5, 3)],
    }
    for name, rows in recordings.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return tmp_path


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def collect(folder: Path, text: str = "talk", use: str = "Talk", **more: Any) -> list[Row]:
    """The rows, completed and failed, of two repeats of one task."""
    models = {name: {"backend": "replay", "path": f"{name}.jsonl"} for name in NAMES}
    models["referee"] |= more.get("referee", {})
    names = {"judge": "referee", "user": "customer"} if use == "Talk" else {"judge": "referee"}
    environment = {
        "use": f"{more.get('file', 'talk.py')}:{use}",
        "models": names,
        "verify_timeout_s": more.get("verify_s", VERIFY_S),
        "turn_timeout_s": TURN_S,
    }
    config = {"models": models, "environments": {"talk": environment}}
    (folder / "mesh.yaml").write_text(json.dumps(config))
    task = {"task_id": "t", "responses_create_params": {"input": text}, "environment": "talk"}
    task |= {"fails": more.get("fails", "")}
    (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    arguments = ["--config", "mesh.yaml", "--input", "tasks.jsonl", "--output", "out.jsonl"]
    with pytest.raises(SystemExit) as ended:
        cli(["collect", *arguments, "--num-repeats", "2"])
    files = [folder / "out.jsonl", folder / "out.failures.jsonl"]
    rows = [row for file in files if file.exists() for row in lines_of(file)]
    assert ended.value.code == (1 if all("failure" in row for row in rows) else 0)
    assert len(rows) == 2
    return sorted(rows, key=lambda row: int(row["repeat_index"]))


NAMES = ("policy", "referee", "customer")


def used(model: str, calls: int, into: int, out: int) -> dict[str, Any]:
    return {"model": model, "calls": calls, "input_tokens": into, "output_tokens": out}


def test_calls_are_made_for_the_rollout_and_end_in_its_row(folder: Path, calls: list[Seen]) -> None:
    answered = metrics.ENVIRONMENT_MODEL_CALLS.labels("talk", "referee", "ok")
    before = answered.value
    rows = collect(folder)
    for row in rows:
        assert row["reward"] == 1.0
        assert row["model_usage"] == [used("customer", 1, 5, 3), used("referee", 3, 90, 6)]
        # The policy's own usage stays apart.
        assert row["response"]["usage"]["input_tokens"] == 100
        mine = [one.model for one in calls if one.rollout_id == row["rollout_id"]]
        assert sorted(mine) == ["customer"] + ["policy"] * 3 + ["referee"] * 3
    assert len(calls) == 14, "and there are no calls of nobody's"
    assert answered.value - before == 6
    for one in calls:
        if one.model != "policy":
            assert 0 < one.remaining_s <= max(VERIFY_S, TURN_S)
    # A judge has a little less than the verdict that it is for.
    assert min(one.remaining_s for one in calls if one.model == "referee") < VERIFY_S - 0.5


def test_what_a_group_costs_ends_in_its_rows(folder: Path, calls: list[Seen]) -> None:
    rows = collect(folder, use="Together")
    for row in rows:
        assert row["verification"]["status"] == "VERIFIED"
        assert row["model_usage"] == [used("referee", 2, 60, 4)]
    judges = [one.rollout_id for one in calls if one.model == "referee"]
    assert sorted(judges) == sorted([row["rollout_id"] for row in rows] * 2)


def test_a_row_without_such_calls_has_no_such_key(folder: Path) -> None:
    config = {
        "models": {"policy": {"backend": "replay", "path": "policy.jsonl"}},
        "environments": {"talk": {"use": "string_match"}},
        "defaults": {"environment": "talk"},
    }
    (folder / "mesh.yaml").write_text(json.dumps(config))
    task = {
        "responses_create_params": {"input": "x"},
        "environment": "talk",
        "expected_answer": "a",
        "extraction_mode": "full_response",
    }
    (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    with pytest.raises(SystemExit):
        cli(["collect", "--config", "mesh.yaml", "--input", "tasks.jsonl", "--output", "new.jsonl"])
    (row,) = lines_of(folder / "new.jsonl")
    assert "model_usage" not in row


def test_a_judge_that_hangs_ends_with_the_verdicts_time(
    folder: Path, calls: list[Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the half minute that the verdict has, the judge gets a second, and its failure the rest.
    monkeypatch.setattr(client, "_KEPT_PART", 1.0)
    monkeypatch.setattr(client, "_KEPT_S", 29.0)
    rows = collect(folder, verify_s=30.0, referee={"options": {"delay_s": 60.0}}, text="be quiet")
    for row in rows:
        assert row["failure"]["boundary"] == "MODEL"
        assert row["failure"]["status"]["reason"] == "MODEL_TIMEOUT"
        assert row["reward"] is None
        # The turn's call before it was answered.
        assert row["model_usage"] == [used("customer", 1, 5, 3)]
    assert all(one.remaining_s <= 1.0 for one in calls if one.model == "referee")


FAILING = """
from gymmesh_resource import Environment, Turn

class Failing(Environment[None]):
    models = ("judge",)

    async def next_turn(self, session, new):
        await session.ask("judge", "a question")
        if session.task.payload["fails"] == "turn":
            raise RuntimeError("a private detail")
        return Turn(done=True)

    async def verify(self, session, rollout):
        await session.ask("judge", "another question")
        raise RuntimeError("a private detail")
"""


@pytest.mark.parametrize(
    ("fails", "boundary", "calls_made"),
    [("turn", "RESOURCE", 1), ("verdict", "VERIFIER", 2)],
)
def test_what_a_failure_had_cost_ends_in_its_row(
    folder: Path, fails: str, boundary: str, calls_made: int
) -> None:
    (folder / "failing.py").write_text(FAILING)
    for row in collect(folder, use="Failing", file="failing.py", fails=fails, text="x"):
        assert row["failure"]["boundary"] == boundary
        assert row["model_usage"] == [used("referee", calls_made, 30 * calls_made, 2 * calls_made)]

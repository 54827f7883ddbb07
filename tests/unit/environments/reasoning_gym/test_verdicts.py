"""The verdict: a table of hard cases, recorded rollouts, and every dataset of the library."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.environments.reasoning_gym import ReasoningGymEnvironment
from gymmesh_responses import item_from_json, new_message
from gymmesh_runtime.errors import MeshError
from tests.support.optional import require
from tests.unit.resource.served import Served, served, task

# Seconds that no test waits for unless something is broken: scores are bounded by processor time,
# and a busy machine only takes longer to give it.
PATIENT = 900.0
pytestmark = pytest.mark.timeout(PATIENT)

require(importlib.util.find_spec("reasoning_gym"), "reasoning-gym", "pip install reasoning-gym")

CASES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8")
)


async def _reward(mesh: Served, row: dict[str, Any], *texts: str) -> float:
    of = task(
        **{key: row[key] for key in ("question", "answer", "metadata", "compat") if key in row}
    )
    transcript = [new_message("assistant", text) for text in texts]
    verification = await mesh.verify(of=of, transcript=transcript, timeout=PATIENT)
    assert verification.HasField("reward"), verification
    return verification.reward


async def _session_and_reward(mesh: Served, row: dict[str, Any]) -> float:
    await mesh.create(task(**row))
    return await _reward(mesh, row, "two")


def _row(case: dict[str, Any]) -> dict[str, Any]:
    metadata = {"source_dataset": case["dataset"], **case.get("metadata", {})}
    compat = {"compat": case["compat"]} if "compat" in case else {}
    return {"question": "?", "answer": case["answer"], "metadata": metadata, **compat}


@pytest.fixture(scope="module")
def rewards() -> dict[str, float]:
    """The rewards of all cases; had at once, since starting the scorers takes seconds."""

    async def judge() -> dict[str, float]:
        environment = ReasoningGymEnvironment(score_workers=1, score_timeout_s=5)
        async with served(environment, verify_timeout_s=PATIENT) as mesh:
            return {
                case["why"]: await _reward(mesh, _row(case), case["response"]) for case in CASES
            }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", PATIENT)
        return asyncio.run(judge())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any], rewards: dict[str, float]) -> None:
    reward = rewards[case["why"]]
    if "below" in case:
        assert reward < case["below"]
    else:
        assert reward == pytest.approx(case["reward"])


def test_the_table_is_large() -> None:
    assert len({case["why"] for case in CASES}) == len(CASES) >= 40


@pytest.mark.golden
async def test_agrees_with_recorded_rewards(golden_dir: Path) -> None:
    path = golden_dir / "reasoning_gym.example_rollouts.jsonl"
    recorded = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    tasks = {
        row["question"]: row
        for row in map(
            json.loads,
            (golden_dir / "reasoning_gym.example.jsonl").read_text(encoding="utf-8").splitlines(),
        )
    }
    assert recorded

    environment = ReasoningGymEnvironment(score_workers=1)
    environment.compat = "nemo"
    async with served(environment) as mesh:
        for rollout in recorded:
            row = tasks[rollout["responses_create_params"]["input"][0]["content"]]
            verification = await mesh.verify(
                of=task(question=row["question"], answer=row["answer"], metadata=row["metadata"]),
                transcript=[item_from_json(item) for item in rollout["response"]["output"]],
            )
            evidence = json.loads(verification.evidence_json)
            assert verification.reward == rollout["reward"]
            assert evidence["task_name"] == rollout["task_name"]
            # The recording was made before the field stripped white space.
            wanted = rollout["extracted_answer"].strip()
            assert evidence["extracted_answer"] == wanted[:1_000]


async def test_messages_are_joined_as_the_field_does() -> None:
    row = _row({"dataset": "chain_sum", "answer": "42"})
    async with served(ReasoningGymEnvironment(score_workers=1)) as mesh:
        assert await _reward(mesh, row, "<answer>4", "2</answer>") == 1.0


#: Rows that cannot be judged, and the key that says so.
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"answer": "1", "metadata": {"source_dataset": "gcd"}}, "question"),
    ({"question": 1, "answer": "1", "metadata": {"source_dataset": "gcd"}}, "question"),
    ({"question": "?", "answer": "1"}, "metadata"),
    ({"question": "?", "answer": "1", "metadata": []}, "metadata"),
    ({"question": "?", "answer": "1", "metadata": {}}, "metadata.source_dataset"),
    (
        {"question": "?", "answer": "1", "metadata": {"source_dataset": 5}},
        "metadata.source_dataset",
    ),
    ({"question": "?", "answer": 1, "metadata": {"source_dataset": "gcd"}}, "answer"),
    (
        {"question": "?", "answer": "1", "metadata": {"source_dataset": "composite"}},
        "metadata.source_dataset",
    ),
    (
        {"question": "?", "answer": "1", "metadata": {"source_dataset": "no_such"}},
        "metadata.source_dataset",
    ),
    # The scorer cannot read the task's own answer either.
    (
        {
            "question": "?",
            "answer": "words",
            "metadata": {"source_dataset": "prime_factorization"},
        },
        "metadata",
    ),
    ({"question": "?", "answer": "1", "metadata": {"source_dataset": "arc_agi"}}, "metadata"),
    # Nothing was computed.
    (
        {
            "question": "?",
            "answer": "3*Integral(x**3*cos(3*x), x) + C",
            "metadata": {"source_dataset": "intermediate_integration"},
        },
        "answer",
    ),
]


@pytest.fixture(scope="module")
def refusals() -> list[float | BaseException]:
    """What became of each broken row; had at once, like the rewards."""

    async def ask() -> list[float | BaseException]:
        async with served(ReasoningGymEnvironment(score_workers=1)) as mesh:
            asked = [_session_and_reward(mesh, row) for row, _ in BROKEN]
            return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(ask())


@pytest.mark.parametrize(("number", "field"), [(n, field) for n, (_, field) in enumerate(BROKEN)])
def test_a_broken_row_is_refused_by_key(
    number: int, field: str, refusals: list[float | BaseException]
) -> None:
    refusal = refusals[number]
    assert isinstance(refusal, MeshError)
    assert refusal.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert field in refusal.message


async def test_a_scorer_that_hangs_on_everything_is_the_tasks_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", PATIENT)
    # The task's own answer is as bad as the model's, so nothing says that the model is to blame.
    row = _row(
        {
            "dataset": "countdown",
            "answer": "9**9**9**9",
            "metadata": {"numbers": [9, 9, 9, 9], "target": 1},
        }
    )
    environment = ReasoningGymEnvironment(score_workers=1, score_timeout_s=1)
    async with served(environment, verify_timeout_s=PATIENT) as mesh:
        with pytest.raises(MeshError) as caught:
            await _reward(mesh, row, "<answer>9**9**9**9**9</answer>")
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert "processor time" in caught.value.message


async def test_hostile_answers_have_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymmesh_resource.workers.answer_work.PATIENCE", PATIENT)
    row = _row(
        {
            "dataset": "countdown",
            "answer": "9+9+9+9",
            "metadata": {"numbers": [9, 9, 9, 9], "target": 36},
        }
    )
    environment = ReasoningGymEnvironment(score_workers=1, score_timeout_s=2)
    async with served(environment, verify_timeout_s=PATIENT) as mesh:
        for hostile in (
            "9**9**9**9",
            "factorial(factorial(99999))",
            "(" * 5_000 + "9" + ")" * 5_000,
            "9" * 100_000,
            "\ud800",
            "\x00",
            "__import__('os').kill(0, 9)",
            "<answer>" * 10_000,
        ):
            assert await _reward(mesh, row, f"<answer>{hostile}</answer>") < 0.1
        assert await _reward(mesh, row, "<answer>9+9+9+9</answer>") == 1.0


async def test_corrections_can_be_switched_off() -> None:
    row = _row({"dataset": "game_of_life_halting", "answer": "True"})
    async with served(ReasoningGymEnvironment(score_workers=1, corrections=False)) as mesh:
        assert await _reward(mesh, row, "False") == 1.0  # as the library has it

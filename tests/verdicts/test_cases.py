"""Every reference verdict in `cases/`, through the environment's own class.

A file is named after its environment, `math.jsonl` or `math.hand.jsonl`.

One case a line, an object:
row: the task row's keys, such as `expected_answer`. prompt: its text, where the row has none.
answer: the model's final text; or `items`: the conversation's items as Responses JSON.
right: the right reward; null where no verdict is right (TASK_INVALID, pending, skipped).
why: a short reason. source: where the right value comes from, never the code that is judged.
clothes: true for a right answer in another usual form.
options: the environment's, if any. judge: what the models `judge` and `user` answer, in order, if
asked. session: true for an environment that judges with the live session of the rollout.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.task import Task
from gymmesh_responses import items_from_json, new_message
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.user_simulator.scripted import Scripted
from tests.unit.resource.served import Served, served

FILES = sorted(Path(__file__).with_name("cases").glob("*.jsonl"))
_KEYS = {"row", "prompt", "answer", "items", "right", "why", "source", "clothes"}
_OPTIONAL = {"options", "judge", "session"}
_AT_ONCE = 16

Case: TypeAlias = Mapping[str, Any]


def cases(path: Path) -> list[dict[str, Any]]:
    """A file's cases, each with the number of its `line`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [{"line": number, **json.loads(line)} for number, line in enumerate(lines, 1)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_cases(path: Path) -> None:
    wrong: list[str] = []
    for options, together in _by_service(cases(path)):
        model = Scripted(*together[0]["judge"]) if "judge" in together[0] else None
        judges = {"judge": model, "user": model} if model else None
        # Judgements have their own limits; on a busy machine they wait for one another.
        async with served(
            model_services=judges,
            use=path.name.partition(".")[0],
            options=options,
            verify_timeout_s=500,
        ) as mesh:
            gate = asyncio.Semaphore(_AT_ONCE)
            answers = await asyncio.gather(*(_fault(mesh, case, gate) for case in together))
            wrong += filter(None, answers)
    assert not wrong, f"{len(wrong)} of {path.name}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_case_says_what_is_right_and_why(path: Path) -> None:
    for case in cases(path):
        place = f"{path.name}:{case.pop('line')}"
        assert set(case) <= _KEYS | _OPTIONAL, place
        assert isinstance(case["row"], dict), place
        assert ("answer" in case) != ("items" in case), place
        assert case["right"] is None or isinstance(case["right"], int | float), place
        assert case["why"], place
        assert case["source"], place
        assert not case.get("clothes") or case["right"], f"{place}: clothes are right answers"


def _by_service(all_cases: Iterable[Case]) -> Iterable[tuple[dict[str, Any], list[Case]]]:
    """The cases that one service can answer, with its options: a scripted judge is for one case."""
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in all_cases:
        options = json.dumps(case.get("options", {}), sort_keys=True)
        groups[f"{case['line']} {options}" if "judge" in case else options].append(case)
    return [(group[0].get("options", {}), group) for group in groups.values()]


async def _fault(mesh: Served, case: Case, gate: asyncio.Semaphore) -> str | None:
    """What is wrong with the case's verdict; None if it is right."""
    async with gate:
        got, about = await _verdict(mesh, case)
    right = case["right"]
    if got == right or (got is not None and right is not None and abs(got - right) < 1e-9):
        return None
    shown = json.dumps(case.get("answer", case.get("items")))[:300]
    return (
        f"line {case['line']}: {json.dumps(case['row'])[:300]} {shown}: {got}, but "
        f"{right} is right ({case['why']}); {about}"
    )


async def _verdict(mesh: Served, case: Case) -> tuple[float | None, str]:
    """The reward, None where there is none, and what it rests on."""
    row = case["row"]
    prompt = {} if "responses_create_params" in row else {"prompt": case.get("prompt", "")}
    task = Task.of({**row, **prompt}).message
    task.environment = "e"
    items = (
        items_from_json(case["items"])
        if "items" in case
        else [new_message("assistant", case["answer"])]
    )
    try:
        session = (await mesh.create(task)).session_id if case.get("session") else ""
        verdict = await mesh.verify(session, task, items, timeout=550)
    except MeshError as error:
        if error.reason_name != "TASK_INVALID":
            raise
        return None, error.message
    judged = verdict.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    return verdict.reward if judged else None, verdict.evidence_json.decode()[:300]


def test_the_set_is_large() -> None:
    every = {path: cases(path) for path in FILES}
    clothes = {path: sum(bool(case.get("clothes")) for case in of) for path, of in every.items()}
    assert sum(map(len, every.values())) >= 3_000
    assert sum(clothes.values()) >= sum(map(len, every.values())) / 3

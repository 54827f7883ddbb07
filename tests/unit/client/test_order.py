"""The order of a run's rollouts, and tasks read from their file in any order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client import Order, TaskDefaults, TaskReader, UserError
from gymmesh_client.collector.order import arrange, length_from, prompt_length
from gymmesh_client.tasks import TaskFile
from tests.support.rollouts import ScriptedAgent, make_task
from tests.unit.client.test_collect import collector, good, tasks


def turns(order: Order, repeats: int, lengths: list[int]) -> list[tuple[str, int]]:
    known = {f"t-{number}": length for number, length in enumerate(lengths)}
    found = arrange(
        [make_task(task_id) for task_id in known],
        repeats,
        order,
        lambda task: float(known[task.task_id]),
    )
    return [(task.task_id, repeat) for task, turn in found for repeat in turn]


def test_orders() -> None:
    assert turns(Order.TASKS, 2, [1, 2]) == [("t-0", 0), ("t-0", 1), ("t-1", 0), ("t-1", 1)]
    assert turns(Order.INTERLEAVED, 2, [1, 2]) == [
        ("t-0", 0),
        ("t-1", 0),
        ("t-0", 1),
        ("t-1", 1),
    ]
    assert turns(Order.LONGEST_FIRST, 1, [5, 9, 5]) == [("t-1", 0), ("t-0", 0), ("t-2", 0)]


@given(st.sampled_from(Order), st.integers(1, 4), st.lists(st.integers(0, 5), max_size=6))
def test_every_repeat_has_one_turn(order: Order, repeats: int, lengths: list[int]) -> None:
    found = turns(order, repeats, lengths)
    assert sorted(found) == [
        (f"t-{task}", repeat) for task in range(len(lengths)) for repeat in range(repeats)
    ]


def test_orders_say_what_they_need() -> None:
    for order, words in ((Order.INTERLEAVED, "several times"), (Order.LONGEST_FIRST, "index")):
        with pytest.raises(ValueError, match=words):
            list(arrange(iter(tasks(2)), 2, order))


def test_lengths_are_those_of_an_earlier_run_else_guessed() -> None:
    def row(task_id: str, tokens: int) -> dict[str, object]:
        return {"task_id": task_id, "response": {"usage": {"output_tokens": tokens}}}

    length = length_from([row("t-1", 100), row("t-1", 300), {"task_id": "t-2", "response": None}])
    assert (length(make_task("t-1")), length(make_task("t-2"))) == (200.0, 0.0)
    other = make_task("t-3")
    assert length(other) == prompt_length(other) > 0


@pytest.mark.parametrize("order", list(Order))
async def test_a_run_in_any_order_is_whole_and_can_be_resumed(tmp_path: Path, order: Order) -> None:
    agent = ScriptedAgent(good)
    run, _ = collector(tmp_path, agent, repeats=2, concurrency=1, order=order)
    assert (await run.run(tasks(3))).completed == 6
    asked = [request.task.task_id for request in agent.requests]
    interleaved = ["t-0", "t-1", "t-2"] * 2
    assert (asked == interleaved) == (order is Order.INTERLEAVED)
    more, _ = collector(tmp_path, agent, repeats=3, resume=True, order=order)
    assert (await more.run(tasks(4))).completed == 6
    assert len({request.rollout_id for request in agent.requests}) == 12


def task_row(text: str, **more: object) -> str:
    return json.dumps({"responses_create_params": {"input": text}, **more})


@given(
    st.lists(st.sampled_from(["a", "a", "b", "dé", ""]), max_size=8),
    st.one_of(st.none(), st.integers(1, 4)),
    st.booleans(),
)
def test_a_task_by_index_is_the_one_in_its_place(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], limit: int | None, mark: bool
) -> None:
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    lines = [task_row(text) if text else "   " for text in texts]
    path.write_text(("\ufeff" if mark else "") + "\n".join(lines), encoding="utf-8")
    found = TaskFile(TaskReader(TaskDefaults("math", "tool_loop")), path, limit)
    in_order = list(found)
    assert len(found) == len(in_order)
    assert [found[index] for index in range(len(found))] == in_order
    assert list(found[::-1]) == in_order[::-1]
    assert len({task.task_id for task in in_order}) == len(in_order)
    with pytest.raises(IndexError):
        found[len(found)]


def test_a_file_that_changed_is_said(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(task_row("a") + "\n")
    found = TaskFile(TaskReader(TaskDefaults("math", "tool_loop")), path)
    assert len(found) == 1
    path.write_text("{nonsense")
    with pytest.raises(UserError, match="changed while it was being read"):
        found[0]
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        list(found)

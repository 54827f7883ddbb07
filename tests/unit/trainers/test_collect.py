from __future__ import annotations

import itertools

from gymmesh_resource import Environment, Outcome, Rollout, Session, Verdict, tool
from gymmesh_trainers import (
    TokenBackend,
    collect,
    run_one,
)
from tests.unit.trainers.char_model import ScriptEngine


class Sums(Environment):
    """Adds numbers."""

    @tool
    def add(self, session: Session, left: int, right: int) -> str:
        """Add two numbers.

        Args:
            left: one.
            right: the other.
        """
        return str(left + right)

    def verify(self, session: Session, rollout: Rollout) -> Outcome:
        return Verdict(float(rollout.answer.strip() == rollout.task.payload["answer"]))


def tasks(count: int):
    return [
        {"task_id": f"t{n}", "prompt": f"What is {n} + 1?", "answer": str(n + 1)}
        for n in range(count)
    ]


async def test_run_one():
    rollout = await run_one(
        Sums(), tasks(2)[1], [{"tool": "add", "arguments": {"left": 1, "right": 1}}, "2"]
    )
    assert rollout.reward == 1.0
    assert rollout.tools_used == ["add"]


async def test_groups():
    turns = itertools.count()

    def answer(text):
        if "tool_call" not in text and next(turns) % 2:
            return 'so: <tool_call>{"name":"add",  "arguments":{"left":1,"right":0}}</tool_call>'
        return "1"

    engine = ScriptEngine(answer)
    groups = [
        g
        async for g in collect(
            Sums, tasks(3), repeats=4, model=TokenBackend(engine.tokenizer, engine)
        )
    ]
    assert len(groups) == 3
    for group in groups:
        print(group.task.id, group.rewards, group.advantages, [f.why for f in group.failed])
        for r in group.rollouts:
            print(r.message.model_calls[-1].tokens.fork, len(r.samples))
            assert len(r.tokens) == len(r.mask) == len(r.logprobs) == len(r.weights_versions)

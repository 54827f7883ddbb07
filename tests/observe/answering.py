"""The policy's endpoints in a scene: they know what is asked, and fail or hang as told."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tests.support.endpoint import Seen, Send, answer, gate, slow, status, text

#: refuses: as no endpoint that is dead, so that it is not left alone and collectors go on.
Mood = Literal["answers", "refuses", "fails", "hangs"]

_PROGRAM: Final = "```python\nn = int(input())\nprint(sum(map(int, input().split())))\n```"
_SLOWEST_S: Final = 0.2


@dataclass
class Policy:
    """Answers each kind of task, with tool calls where it has tools."""

    mood: Mood = "answers"
    free: asyncio.Event = field(default_factory=asyncio.Event)

    def be(self, mood: Mood) -> None:
        """From now on; what hangs goes on with any other mood."""
        self.free.set()
        self.mood = mood
        if mood == "hangs":
            self.free = asyncio.Event()

    def __call__(self, seen: Seen) -> Send:
        if self.mood in ("fails", "refuses"):
            return status(500 if self.mood == "fails" else 400)
        said = _said(seen)
        if self.mood == "hangs":
            return gate(self.free, said)
        return slow(random.uniform(0.1, 1.0) * _SLOWEST_S, said)


def _said(seen: Seen) -> Send:
    messages = seen.body["messages"]
    whole = json.dumps(messages)
    if "You judge answers" in whole:
        return text("[[A=B]]" if random.random() < 0.7 else "[[A!=B]]")
    if "Python program" in whole:
        return text(_PROGRAM)
    if "capital" in whole:
        return text(random.choice(["Canberra", "Sydney"]))
    rang = messages[-1]["role"] == "tool"
    if "basket" in whole:
        if rang:
            return text("Done.")
        item = random.choice(["apple", "bread", "ham"])
        return answer(calls=[("call_1", "add", json.dumps({"item": item, "count": 2}))])
    if not rang:
        return answer(calls=[("call_1", "calculator", '{"expression": "2 + 2"}')])
    # The last one takes more of the verifier's time than it is given.
    said = random.choices(["4", "The answer is 5", r"\boxed{\int_0^1 x^{x^{x^x}} dx}"], [50, 45, 5])
    return text(said[0])


def rows(environment: str, count: int) -> list[dict[str, Any]]:
    """Tasks of an environment that this policy can do, or do badly."""
    prompts = {
        "shop": "Put two apples into the basket.",
        "math": "What is 2 + 2?",
        "code": "Write a Python program that reads n, then n numbers, and prints their sum.",
        "llm_judge": "Which city is the capital of Australia?",
    }
    wanted: dict[str, dict[str, Any]] = {
        "shop": {"wanted": {"apple": 2}},
        "math": {"expected_answer": "4"},
        "code": {"verifier_metadata": {"unit_tests": {"inputs": ["2\n1 2\n"], "outputs": ["3\n"]}}},
        "llm_judge": {"expected_answer": "Canberra"},
    }
    asked = {"input": [{"role": "user", "content": prompts[environment]}]}
    return [
        {
            "task_id": f"{environment}-{number}",
            "environment": environment,
            "responses_create_params": asked,
            **wanted[environment],
        }
        for number in range(count)
    ]

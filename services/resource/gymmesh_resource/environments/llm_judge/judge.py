"""Asks the judge, and asks once more when its reply cannot be read.

Invariant: what comes back is a verdict that the judge gave. Otherwise `AnswerUnjudged` is raised
where it is the answer's doing, which makes it worth nothing, or else `UnreadableReply`, which a
verifier reports as a failure or as not judged, never as a reward.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.models import ModelAnswer
from gymmesh_responses import text_of
from gymmesh_runtime.errors import MeshError

from .control import judged
from .fences import fence
from .prompts import SYSTEM, equivalence_prompt, reminder
from .verdicts import read_equivalence

T = TypeVar("T")
# Characters of a reply kept as evidence: its end, where the verdict is.
_EVIDENCE = 2_000


class UnreadableReply(Exception):
    """The judge answered twice without a verdict, and so to the same about a harmless answer.

    `reply`: the end of its last answer.
    """

    def __init__(self, reply: str) -> None:
        self.reply = reply
        super().__init__("the judge gave no verdict that can be read, twice")

    def fault(self, verifier: str) -> MeshError:
        """It as the failure of a verifier."""
        return MeshError(
            errors_pb2.ERROR_REASON_VERIFIER_FAULT,
            f"There is no verdict: {self}.",
            metadata={"verifier": verifier, "stage": "judge"},
        )


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """What a judge is asked about an answer."""

    prompt: str
    system: str


@dataclass(frozen=True, slots=True)
class JudgeDecision(Generic[T]):
    """A verdict, with the end of the reply that holds it and how often the judge was asked."""

    value: T
    reply: str
    asked: int


class Judge:
    """A judge model.

    `ask`: asks the model, as `Session.ask` does with the model's name given. `params`: its
    Responses parameters. `places`: how many questions may be open at a time.
    """

    def __init__(
        self,
        ask: Callable[..., Awaitable[ModelAnswer]],
        *,
        params: Mapping[str, Any],
        places: asyncio.Semaphore,
    ) -> None:
        self._ask = ask
        self._params = params
        self._places = places

    async def decide(
        self,
        answer: str,
        question: Callable[[str], JudgePrompt],
        *,
        read: Callable[[str], T | None],
        labels: str,
    ) -> JudgeDecision[T]:
        """The verdict that `read` finds in the reply to the question about the answer.

        Raises `AnswerUnjudged`, `UnreadableReply`, MeshError MODEL_*.
        """
        replies: list[str] = []

        async def ask(about: str) -> JudgeDecision[T] | None:
            return await self._decide(question(about), read, labels, replies)

        decision = await judged(ask, answer)
        if decision is None:
            raise UnreadableReply(replies[-1])
        return decision

    async def _decide(
        self,
        question: JudgePrompt,
        read: Callable[[str], T | None],
        labels: str,
        replies: list[str],
    ) -> JudgeDecision[T] | None:
        """The verdict, in at most two calls; adds the ends of the replies."""
        conversation: list[dict[str, Any]] = [{"role": "user", "content": question.prompt}]
        for attempt in (1, 2):
            async with self._places:
                answer = await self._ask(conversation, system=question.system, **self._params)
            reply = _last_message(answer)
            replies.append(reply[-_EVIDENCE:])
            value = read(reply)
            if value is not None:
                return JudgeDecision(value, replies[-1], attempt)
            conversation = [
                *conversation,
                {"role": "assistant", "content": replies[-1] or "(nothing)"},
                {"role": "user", "content": reminder(labels)},
            ]
        return None


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The question whether two answers are equivalent.

    system: the first sentence of the judge's instructions. template: the prompt, in place of our
    own. equal, not_equal: the labels that a judge ends with.
    """

    system: str = SYSTEM
    template: str | None = None
    equal: str = "[[A=B]]"
    not_equal: str = "[[A!=B]]"

    async def ask(
        self, judge: Judge, question: str, expected: str, answer: str, *, swapped: bool = False
    ) -> JudgeDecision[bool]:
        """The judge's decision; swapped: shown the answers in the other order.

        Raises as `Judge.decide` does.
        """
        labels = [re.compile(re.escape(label)) for label in (self.equal, self.not_equal)]

        def about(given: str) -> JudgePrompt:
            first, second = (given, expected) if swapped else (expected, given)
            pieces = {"question": question, "expected_answer": first, "generated_answer": second}
            fenced = fence(pieces, labels)
            prompt = equivalence_prompt(fenced.blocks, self.template, self.equal, self.not_equal)
            return JudgePrompt(prompt, fenced.instructions(self.system))

        return await judge.decide(
            answer,
            about,
            read=partial(read_equivalence, equal=self.equal, not_equal=self.not_equal),
            labels=f"{self.equal}, {self.not_equal}",
        )


def _last_message(answer: ModelAnswer) -> str:
    """The text of the last message: a judge may think aloud in messages before it."""
    messages = [item for item in answer.response.output if item.WhichOneof("kind") == "message"]
    return text_of(messages[-1]) if messages else ""

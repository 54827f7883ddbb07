"""Asks the judge, and asks once more when its reply cannot be read.

Invariant: the result is a verdict of the judge. Without a verdict, `AnswerUnjudged` is raised if
the answer is the cause; the answer then gets no reward. Otherwise `UnreadableReply` is raised,
which a verifier reports as a failure or as not judged, never as a reward.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.environments.llm_judge.control import judged
from gymmesh_resource.environments.llm_judge.fences import fence
from gymmesh_resource.environments.llm_judge.prompts import SYSTEM, equivalence_prompt, reminder
from gymmesh_resource.environments.llm_judge.verdicts import read_equivalence
from gymmesh_resource.model_access import ModelAnswer
from gymmesh_responses import text_of
from gymmesh_runtime.errors import MeshError

IS_FACE = True  # see tools/import_faces.py

T = TypeVar("T")
# Characters of a reply kept as evidence: its end, where the verdict is.
_EVIDENCE = 2_000


class UnreadableReply(Exception):
    """The judge replied twice without a verdict, also about a harmless answer.

    `reply`: the end of its last answer.
    """

    def __init__(self, reply: str) -> None:
        self.reply = reply
        super().__init__("the judge was asked twice and returned no readable verdict")

    def fault(self, verifier: str) -> MeshError:
        return MeshError(
            errors_pb2.ERROR_REASON_VERIFIER_FAULT,
            f"There is no verdict: {self}.",
            metadata={"verifier": verifier, "stage": "judge"},
        )


@dataclass(frozen=True, slots=True)
class JudgeDecision(Generic[T]):
    """A verdict, with the end of the reply that holds it and how often the judge was asked."""

    value: T
    reply: str
    asked: int


class Judge:
    """A judge model.

    `ask`: asks the model, as `Session.ask` with the model's name. `params`: parameters of its
    calls, as in the Responses API. `places`: limits the number of questions in flight. `system`:
    the first sentence of its instructions.
    """

    def __init__(
        self,
        ask: Callable[..., Awaitable[ModelAnswer]],
        *,
        params: Mapping[str, Any],
        places: asyncio.Semaphore,
        system: str = SYSTEM,
    ) -> None:
        self._ask = ask
        self._params = params
        self._places = places
        self._system = system

    async def decide(
        self,
        answer: str,
        pieces: Callable[[str], Mapping[str, str]],
        prompt: Callable[[Mapping[str, str]], str],
        *,
        marks: Sequence[re.Pattern[str]],
        read: Callable[[str], T | None],
        labels: str,
    ) -> JudgeDecision[T]:
        """The verdict that `read` finds in the reply, in at most two calls.

        `pieces`: the material about an answer, by name, of which `prompt` makes the question when
        each is fenced. `marks`: what a verdict looks like. `labels`: what to reply with.

        Raises `AnswerUnjudged`, `UnreadableReply`, MeshError MODEL_*.
        """
        end = ""

        async def ask(about: str) -> JudgeDecision[T] | None:
            nonlocal end
            fenced = fence(pieces(about), marks)
            system = fenced.instructions(self._system)
            conversation: list[dict[str, Any]]
            conversation = [{"role": "user", "content": prompt(fenced.blocks)}]
            for attempt in (1, 2):
                async with self._places:
                    answered = await self._ask(conversation, system=system, **self._params)
                reply = _last_message(answered)
                end = reply[-_EVIDENCE:]
                value = read(reply)
                if value is not None:
                    return JudgeDecision(value, end, attempt)
                conversation = [
                    *conversation,
                    {"role": "assistant", "content": end or "(nothing)"},
                    {"role": "user", "content": reminder(labels)},
                ]
            return None

        decision = await judged(ask, answer)
        if decision is None:
            raise UnreadableReply(end)
        return decision


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The question whether two answers are equivalent.

    template: the prompt, in place of our own. equal, not_equal: the labels that a judge ends with.
    as_nemo: of several labels the first one counts.
    """

    template: str | None = None
    equal: str = "[[A=B]]"
    not_equal: str = "[[A!=B]]"
    as_nemo: bool = False

    async def ask(
        self, judge: Judge, question: str, expected: str, answer: str, *, swapped: bool = False
    ) -> JudgeDecision[bool]:
        """The judge's decision; swapped: shown the answers in the other order.

        Raises as `Judge.decide` does.
        """

        def pieces(given: str) -> Mapping[str, str]:
            first, second = (given, expected) if swapped else (expected, given)
            return {"question": question, "expected_answer": first, "generated_answer": second}

        equal, not_equal = self.equal, self.not_equal
        return await judge.decide(
            answer,
            pieces,
            partial(equivalence_prompt, template=self.template, equal=equal, not_equal=not_equal),
            marks=[re.compile(re.escape(label)) for label in (equal, not_equal)],
            read=partial(read_equivalence, equal=equal, not_equal=not_equal, as_nemo=self.as_nemo),
            labels=f"{equal}, {not_equal}",
        )


def _last_message(answer: ModelAnswer) -> str:
    """The text of the last message: a judge may think aloud in messages before it."""
    messages = [item for item in answer.response.output if item.WhichOneof("kind") == "message"]
    return text_of(messages[-1]) if messages else ""

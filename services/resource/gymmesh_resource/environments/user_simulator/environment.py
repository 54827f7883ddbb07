"""Support chats with a customer that a second model plays.

Task rows have `user` (the customer's part, hidden from the policy), `state` and `expected` (what
must have come of it); `tool_answers` where the row brings tools of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environment import Environment, Turn
from gymmesh_resource.environments.llm_judge.control import (
    HARMLESS,
    AnswerRefused,
    AnswerUnjudged,
    judged,
)
from gymmesh_resource.environments.user_simulator.domains import Domain, RowTools, ShopTools
from gymmesh_resource.environments.user_simulator.expectation import Expectation, read_expectation
from gymmesh_resource.environments.user_simulator.judging import SYSTEM, judge_prompt, read_label
from gymmesh_resource.environments.user_simulator.simulator import (
    FIRST,
    INSTEAD,
    QUOTED,
    Brief,
    Reply,
    heard,
    read_brief,
    read_reply,
)
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.expected import Expected
from gymmesh_resource.rollout import Rollout, Transcript
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Verdict
from gymmesh_responses import new_message, text_of
from gymmesh_runtime.errors import MeshError

# How often a model is asked again that gave no usable answer.
_AGAIN = 1
# Characters of messages that are compared in a thread of their own.
_LARGE = 50_000


@dataclass(slots=True)
class Chat:
    """One conversation: the domain's state, and the simulator's view of the messages."""

    brief: Brief
    domain: Domain
    expectation: Expectation
    state: dict[str, Any]
    most: int
    opening: str = ""
    spoken: list[responses_pb2.Item] = field(default_factory=list)
    replies: int = 0
    quoted: int = 0
    ended_by: str = ""
    failure: str = ""


class UserSimulatorEnvironment(Environment[Chat]):
    """Support chats with a customer played by a second model, in a small shop or on own tools.

    The reward is 1.0 when the final state is as expected, all required facts were told, no
    forbidden one was, and the judge, where one is asked, agrees.
    """

    version = "3"
    keep_state = False  # it has the simulated user's items, which JSON cannot hold
    examples = "tasks.jsonl"
    models = ("user", "judge")

    def __init__(
        self,
        *,
        judge: bool = False,
        scoring: Literal["all", "mean"] = "all",
        max_turns: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20,
        stop_token: str = "###STOP###",
        user_params: dict[str, Any] | None = None,
        judge_params: dict[str, Any] | None = None,
    ) -> None:
        """Options.

        judge: whether a model `judge` is asked about the rows' `expected.criteria`.
        scoring: all parts must hold, or the mean of those that the row asks for.
        max_turns: the most messages of the customer. stop_token: ends the chat.
        user_params, judge_params: of these models' calls, such as temperature.
        """
        if len(stop_token) < 4 or not (stop_token[0] == stop_token[-1] == "#"):
            raise ValueError("stop_token must begin and end with #, as in ###STOP###")
        if any(char.isspace() for char in stop_token):
            raise ValueError("stop_token must not have spaces")
        self._judge = judge
        self._mean = scoring == "mean"
        self._most = max_turns
        self._stop = stop_token
        self._user_params = user_params or {}
        self._judge_params = judge_params or {}

    def called_models(self) -> Sequence[str]:
        return ("user", "judge") if self._judge else ("user",)

    def check_task(self, task: Task) -> None:
        """The row's user, state and expectation must be sound, down to its expected actions."""
        self._chat(task)

    def create_state(self, task: Task, seed: int) -> Chat:
        return self._chat(task)

    def session_tools(self, session: Session[Chat]) -> Sequence[Mapping[str, Any]]:
        """The shop's tools, unless the row has its own."""
        return session.state.domain.offered()

    def call_other(self, session: Session[Chat], name: str, arguments: dict[str, Any]) -> Any:
        chat = session.state
        chat.state, output = chat.domain.call(chat.state, name, arguments)
        return output

    async def opening(self, session: Session[Chat]) -> str:
        """The customer's first message: the row's, or the simulator's."""
        chat = session.state
        first = new_message("user", FIRST)
        reply = None if chat.brief.opening else await self._reply(session, [first])
        text = reply.text if reply else chat.brief.opening
        if not text:
            raise _unusable("user", "the simulated user ended the chat without any message")
        chat.spoken += [first, new_message("assistant", text)]
        chat.opening = text
        chat.replies = 1
        return text

    async def next_turn(self, session: Session[Chat], new: Transcript) -> Turn:
        chat = session.state
        if chat.replies >= chat.most:
            chat.ended_by = "the turn limit"
            return Turn(done=True)
        said = new_message("user", heard(new.texts, self._stop))
        # The chat changes when the answer is there: a turn that fails can be taken again.
        try:
            reply = await self._answer(session, said)
        except AnswerRefused as error:
            chat.ended_by = "a message that the user's model refused"
            chat.failure = str(error).replace("the judge", "the simulated user")
            return Turn(done=True)
        except AnswerUnjudged:
            reply = Reply(INSTEAD, stopped=False)
        chat.spoken += [said, new_message("assistant", reply.text)]
        chat.replies += 1
        if reply.stopped:
            chat.ended_by = "the user"
        return Turn(reply.text or (), done=reply.stopped)

    def expected(self, task: Task) -> Expected | None:
        """The row's expected actions, then all that is to be said; None where only the wanted
        state is known, or a judge decides.
        """
        wanted = task.require("expected")
        if "state" in wanted or wanted.get("criteria"):
            return None
        calls = [(one["name"], one.get("arguments", {})) for one in wanted.get("actions", ())]
        facts = [forms[0] for forms in self._chat(task).expectation.say]
        return Expected(" and ".join(facts) or "Done.", "calls", "It is {answer}.", calls=calls)

    async def verify(self, session: Session[Chat], rollout: Rollout) -> Verdict:
        """Compare the final state and the model's messages; ask the judge if there is one."""
        chat = session.state
        if chat.failure:
            parts = dict.fromkeys(("state", "said", "unsaid"), 0.0)
            parts |= {"judge": 0.0} if self._judge else {}
            evidence = {"ended_by": chat.ended_by, "failure_reason": chat.failure}
            return Verdict(0.0, components=parts, evidence=evidence, explanation=chat.failure)
        compare = partial(chat.expectation.findings, chat.state, rollout.texts)
        # Quick, but for what a model wrote without end; that must not hold up other sessions.
        large = sum(map(len, rollout.texts)) > _LARGE
        found = await asyncio.to_thread(compare) if large else compare()
        failure = ""
        parts = {
            "state": float(not found.differences),
            "said": 1.0 - found.missing_share,
            "unsaid": float(not found.leaked),
        }
        if self._judge:
            try:
                met = not chat.expectation.criteria or await self._judged(session, rollout)
            except AnswerUnjudged as error:
                met, failure = False, str(error)
            parts["judge"] = float(met)
        asked = {name: parts[name] for name in chat.expectation.asked if name in parts}
        mean = sum(asked.values()) / len(asked)
        fell_short = [name for name, part in asked.items() if part < 1.0]
        return Verdict(
            mean if self._mean else float(mean == 1.0),
            components=parts,
            explanation=f"not met: {', '.join(fell_short)}" if fell_short else "all parts are met",
            evidence={
                "state_differences": found.differences,
                "missing_facts": found.missing,
                "forbidden_facts_told": found.leaked,
                "user_messages": chat.replies,
                "user_quoted_notes": chat.quoted,
                "ended_by": chat.ended_by or "the agent",
                **({"failure_reason": failure} if failure else {}),
            },
        )

    async def _answer(self, session: Session[Chat], said: responses_pb2.Item) -> Reply:
        """The simulator's answer; `AnswerUnjudged` where it has one to a harmless message only."""
        chat = session.state

        async def ask(about: str) -> Reply | None:
            if about == HARMLESS:
                harmless = new_message("user", about)
                return await self._reply(session, [*chat.spoken[:2], harmless])
            return await self._reply(session, [*chat.spoken, said])

        reply = await judged(ask, text_of(said))
        if reply is None:
            raise _unusable("user", "the simulated user sent no message")
        return reply

    async def _reply(self, session: Session[Chat], items: list[responses_pb2.Item]) -> Reply | None:
        """The simulator's next message after `items`; None when it is unusable again."""
        chat = session.state
        for _ in range(_AGAIN + 1):
            answer = await session.ask(
                "user",
                items,
                system=chat.brief.instructions(self._stop),
                seed=session.random.getrandbits(31),
                **self._user_params,
            )
            reply = read_reply(answer.text, self._stop)
            if not reply.text and not reply.stopped:
                continue
            if not chat.brief.quoted_in(reply.text):
                return reply
            chat.quoted += 1
            quoted = new_message("assistant", reply.text)
            items = [*items, quoted, new_message("user", QUOTED)]
        if reply.text:
            return Reply(INSTEAD, reply.stopped)
        return None

    async def _judged(self, session: Session[Chat], rollout: Rollout) -> bool:
        chat = session.state
        items = [new_message("user", chat.opening), *rollout.items]

        async def ask(about: str) -> bool | None:
            shown = [*items[:1], new_message("assistant", about)] if about == HARMLESS else items
            prompt = judge_prompt(chat.expectation.criteria, shown)
            for _ in range(_AGAIN + 1):
                answer = await session.ask("judge", prompt, system=SYSTEM, **self._judge_params)
                met = read_label(answer.text)
                if met is not None:
                    return met
            return None

        with rollout.stage("judge") as stage:
            met = await judged(ask, rollout.text)
            stage.note = "met" if met else "not met"
        if met is None:
            raise _unusable("judge", "the judge returned no label")
        return met

    def _chat(self, task: Task) -> Chat:
        payload = task.payload
        brief = read_brief(task.require("user"))
        domain: Domain
        if "tool_answers" in payload:
            domain = RowTools(payload["tool_answers"], payload.get("state", {}))
        else:
            domain = ShopTools(task.require("state", dict))
        expectation = read_expectation(task.require("expected"), domain)
        if expectation.criteria and not self._judge:
            raise TaskInvalid(
                "expected.criteria", "needs a judge model. Set the option 'judge' to true"
            )
        if not expectation.asked:
            raise TaskInvalid(
                "expected",
                "has no expectation; add at least one of the keys 'state', 'actions', 'say', "
                "'dont_say' and 'criteria'",
            )
        most = payload.get("max_turns", self._most)
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 1000:
            raise TaskInvalid("max_turns", "must be a whole number from 1 to 1000")
        return Chat(brief, domain, expectation, domain.start(), most)


def _unusable(model: str, cause: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID,
        f"{cause}, after {_AGAIN + 1} tries",
        metadata={"model": model, "cause": cause},
    )

"""What a capture gateway must offer to be tested: an adapter of a few lines.

The suite plays programs against the gateway and writes the model's answers. The adapter opens a
rollout at the gateway, has the gateway's model ask the suite's `Script`, and says afterwards which
calls were captured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

_BOUND_S: Final = 30.0


@dataclass(frozen=True)
class WrittenCall:
    """A tool call that the model makes: a name, and arguments as the model wrote them."""

    name: str
    arguments: str


@dataclass(frozen=True)
class WrittenAnswer:
    """What the model writes: reasoning, a text and tool calls, each of which may be missing."""

    text: str = ""
    calls: tuple[WrittenCall, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True)
class CaughtCall:
    """A call as the gateway captured it. What a gateway does not know stays None: it is not judged.

    Attributes:
        parent: the place among the captured calls of the one that it hangs on; None: of none.
        is_trained: whether its sampled tokens are trained on.
        link: how it hangs on the parent: continuation, fork, side, unknown.
        reason: of a fork, in lower case: branch, history_rewritten, respelled, preamble_changed,
            compaction.
        side: what a call beside the conversation is for.
        is_detached: whether its context shares nothing with its parent's.
        prompt_tokens, output_tokens: where the gateway keeps them.
    """

    parent: int | None
    is_trained: bool
    link: str | None = None
    reason: str | None = None
    side: str | None = None
    is_detached: bool | None = None
    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: tuple[int, ...] | None = None


class Script:
    """The model behind the gateway: each request takes the next answer.

    Attributes:
        asked: how many requests there were.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._answers: list[WrittenAnswer] = []
        self._changed = asyncio.Condition()
        self._is_held = False

    def write(self, answer: WrittenAnswer) -> None:
        """The answer to the next request."""
        self._answers.append(answer)

    def hold(self) -> None:
        """Let requests wait for their answers."""
        self._is_held = True

    async def release(self) -> None:
        """Answer requests, those that wait too."""
        async with self._changed:
            self._is_held = False
            self._changed.notify_all()

    async def asked_for(self, count: int) -> None:
        """Wait until there were that many requests. Raises TimeoutError."""
        async with asyncio.timeout(_BOUND_S), self._changed:
            await self._changed.wait_for(lambda: self.asked >= count)

    async def next_answer(self) -> WrittenAnswer:
        """For the adapter: the answer to one request of the gateway, when it is due."""
        async with self._changed:
            place, self.asked = self.asked, self.asked + 1
            self._changed.notify_all()
            await self._changed.wait_for(lambda: not self._is_held)
        if place < len(self._answers):
            return self._answers[place]
        return WrittenAnswer(text="The script has no answer: one request too many came.")


class OpenRollout(Protocol):
    """A rollout at the gateway.

    Attributes:
        url: the gateway's root, without `/v1`.
        key: what the program shows as its API key.
    """

    url: str
    key: str

    async def finish(self) -> Sequence[CaughtCall]:
        """The program has ended: the captured calls, in the order in which the model was asked."""
        ...


class GatewayAdapter(Protocol):
    """A capture gateway under test."""

    def rollout(self, script: Script, program: str) -> AbstractAsyncContextManager[OpenRollout]:
        """Open a rollout whose model answers by the script.

        Args:
            program: the name of the program that is played, such as `codex`.
        """
        ...

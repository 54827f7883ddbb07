"""What a capture gateway must offer to be tested: an adapter of a few lines.

The suite plays programs against the gateway and writes the model's answers. The adapter opens a
rollout at the gateway, has the gateway's model ask the suite's `Script`, and says afterwards which
calls were captured. A gateway that keeps tokens also gives what a trainer would train on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

_BOUND_S: Final = 30.0
#: The APIs that programs call, as sessions name them.
APIS: Final = ("chat", "responses", "messages", "gemini")


class AdapterError(Exception):
    """An adapter's: the gateway did not do what a rollout needs. The case has failed."""


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
class SampledTokens:
    """What the model read and wrote in one call, as its server knows it.

    Attributes:
        prompt: the ids that it read.
        output: the ids that it sampled.
        logprobs: the log probability of each sampled id, in natural logarithms.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    logprobs: tuple[float, ...]


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
        is_detached: whether the gateway says that its prompt does not go on from the parent's
            tokens.
        is_placed: whether the gateway says at all what the call hangs on. False: `parent` is None
            and means nothing; a case that asks for it is then not shown.
        tokens: where the gateway keeps them.
    """

    parent: int | None
    is_trained: bool | None
    link: str | None = None
    reason: str | None = None
    side: str | None = None
    is_detached: bool | None = None
    is_placed: bool = True
    tokens: SampledTokens | None = None


@dataclass(frozen=True)
class CaughtSample:
    """A sequence that a trainer trains on; all lists are as long as `ids`.

    Attributes:
        ids: what the model read and wrote, in order.
        mask: whether an id is trained on.
        logprobs: of each id that is trained on, as it was sampled; any number elsewhere. None: the
            gateway keeps none.
    """

    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...] | None = None


class Script:
    """The model behind the gateway: each request takes the next answer.

    Attributes:
        asked: how many requests there were.
        sampled: the tokens of each request, in the order in which the model was asked; empty where
            the model has none.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.sampled: list[SampledTokens] = []
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


@runtime_checkable
class TokenRollout(OpenRollout, Protocol):
    """A rollout at a gateway that keeps tokens."""

    async def samples(self) -> Sequence[CaughtSample] | None:
        """After `finish`: what a trainer trains on, as the gateway or its framework makes it; None
        where it has no tokens after all.
        """
        ...


class GatewayAdapter(Protocol):
    """A capture gateway under test."""

    def rollout(self, script: Script, program: str) -> AbstractAsyncContextManager[OpenRollout]:
        """Open a rollout whose model answers by the script.

        Args:
            program: the name of the program that is played, such as `codex`.
        """
        ...


@runtime_checkable
class PartialGateway(GatewayAdapter, Protocol):
    """A capture gateway that offers some of the APIs alone: cases of others are skipped.

    Attributes:
        apis: of `chat`, `responses`, `messages` and `gemini`.
    """

    apis: Sequence[str]


def apis_of(adapter: GatewayAdapter) -> Sequence[str]:
    """The APIs that a gateway offers. Raises LookupError for one that there is not."""
    if not isinstance(adapter, PartialGateway):
        return APIS
    unknown = [one for one in adapter.apis if one not in APIS]
    if unknown or isinstance(adapter.apis, str):
        raise LookupError(
            f"the adapter's apis are {adapter.apis!r}: list some of {', '.join(APIS)}"
        )
    return adapter.apis

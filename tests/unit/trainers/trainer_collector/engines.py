"""Engines that tests of steps hold back, count and repeat."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable

from gymmesh_trainers import Generation, SamplingParams, TokenBackend
from tests.unit.trainers.char_model import EOS, CharTokenizer


class CountingEngine:
    """Answers by a function of the prompt's text and the call's number for that prompt. Prompts
    that `held` names wait until `gate` is set.

    Attributes:
        now: calls that are under way.
        calls: all calls so far.
        params: those of each call.
    """

    def __init__(
        self,
        answer: Callable[[str, int], str],
        held: Callable[[str], bool] = lambda prompt: False,
    ) -> None:
        self.now = self.calls = 0
        self.params: list[SamplingParams] = []
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        self._answer = answer
        self._held = held
        self._times: Counter[str] = Counter()

    @property
    def model(self) -> TokenBackend:
        """The engine as a model."""
        return TokenBackend(CharTokenizer(), self)

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        text = CharTokenizer().decode(prompt)
        number, self._times[text] = self._times[text], self._times[text] + 1
        self.now += 1
        self.calls += 1
        self.params.append(params)
        try:
            self.began.set()
            if self._held(text):
                await self.gate.wait()
            else:
                await asyncio.sleep(0)
            return generation(self._answer(text, number))
        finally:
            self.now -= 1


def generation(text: str, version: int | None = None) -> Generation:
    """An answer with its stop token."""
    ids = [*CharTokenizer().encode(text), EOS]
    weights = [] if version is None else [(version, 0)]
    return Generation(ids, [-0.5] * len(ids), weights=weights)


def drawn(prompt: str, seed: int | None, version: int, sides: int) -> int:
    """A number that is the same for the same prompt, seed and weights, on any machine."""
    digest = hashlib.sha256(f"{prompt}\n{seed}\n{version}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % sides

"""Engines of token ids: what samples the answers of a `TokenBackend`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gymmesh_model.backends.base import BackendCall, Features
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.scores import TokenScores
from gymmesh_model.errors import AnswerInvalid

WANTED: Final = "generate must be async and return a Generation"
"""The error message for an engine that breaks this rule."""

Generate = Callable[[list[int], SamplingParams], Awaitable[Generation]]
"""Samples an answer to a prompt's token ids. If it raises an exception, the rollout fails with the
boundary MODEL.
"""


class Engine:
    """An engine that its backend opens and closes, such as a remote server.

    A subclass defines at least `generate`, and `score` if `scores` is true.

    Attributes:
        features: what it does beyond sampling; set by the constructor.
        is_program: whether it is the program's own code, so that failures may show the text of its
            exceptions.
        scores: whether it scores token ids that it did not sample.
        side_data: the names of side data that its answers have when the call's record asks for it.
    """

    features: Features = Features()
    is_program: bool = True
    scores: bool = False
    side_data: Sequence[str] = ()

    async def open(self) -> None:
        """Acquire its resources, in the event loop of the mesh. Raises ConfigError."""

    async def close(self) -> None:
        """Release its resources. Bounded; may be called twice, or before `open`."""

    async def context_tokens(self) -> int:
        """The most tokens of prompt and answer together; 0: not known (yet)."""
        return 0

    async def generate(
        self, prompt: list[int], params: SamplingParams, call: BackendCall
    ) -> Generation:
        """Sample an answer to a prompt's token ids. Raises MeshError with a MODEL_* reason."""
        raise NotImplementedError

    async def score(
        self, prompt: list[int], continuations: Sequence[list[int]], call: BackendCall
    ) -> Sequence[TokenScores]:
        """The scores of token ids after a prompt's, one for each continuation, in order. Ends
        within `call.timeout` seconds. Raises MeshError with a MODEL_* reason.
        """
        raise NotImplementedError


class CallableEngine(Engine):
    """A `Generate`, which is neither opened nor closed."""

    def __init__(self, generate: Generate) -> None:
        self._generate = generate

    async def generate(
        self, prompt: list[int], params: SamplingParams, call: BackendCall
    ) -> Generation:
        answering: object = self._generate(prompt, params)
        if not inspect.isawaitable(answering):
            raise AnswerInvalid(f"{WANTED}; it is not async")
        made: Generation = await answering
        return made

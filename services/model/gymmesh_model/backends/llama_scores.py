"""Scores continuations at llama.cpp's server, token by token.

The server returns log probabilities of tokens that it samples, but none of a prompt's tokens. So
each token of a continuation is sampled in a request of its own, after the tokens before it, and
forced by a bias. The log probability is computed from the model's logits, before the bias. A call
costs a rendering, a tokenisation of the prompt and of each text, and a request for each token. Such
a request reads only one new token, because the server keeps the prompt in its cache.

Facts: `POST /apply-template`, `/tokenize` and `/completion` of llama.cpp's server (`n_probs`,
`logit_bias`, `post_sampling_probs`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from gymmesh.model.v1 import model_pb2
from gymmesh_model.backends.calls import RetryLog
from gymmesh_model.backends.chat import read_answer
from gymmesh_model.backends.endpoint import HttpEndpoint, Sendable
from gymmesh_model.backends.scores import (
    TokenScores,
    check_context,
    ids_after,
    response_of,
    scores_of,
)
from gymmesh_model.errors import AnswerInvalid, answer_invalid
from gymmesh_model.tokens import pack_ids
from gymmesh_responses import dumps, unpack_ids

T = TypeVar("T")
Json = dict[str, Any]
_LEAST_SECONDS: Final = 0.001
# Above the range of logits, so that no other token is sampled.
_FORCED: Final = 1e6
# The server computes probabilities in float32; one that is 0 there has the lowest number instead.
_UNDERFLOW: Final = -1e30


@dataclass(frozen=True, slots=True)
class LlamaScoring:
    """One call that scores continuations.

    Attributes:
        name: the model's in the mesh, for errors.
        base: the server's URL, without a path.
        headers: of each request.
        context: the most tokens of prompt and continuation together.
        deadline: of the event loop's clock.
        log: where retries are noted.
    """

    http: HttpEndpoint
    name: str
    base: str
    headers: Mapping[str, str]
    context: int
    deadline: float
    log: RetryLog | None

    async def run(
        self, messages: Sequence[Json], continuations: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        """The scores of texts after the messages of a chat. Raises MeshError."""
        text = await self._post("/apply-template", {"messages": messages}, _prompt_text)
        prompt = await self._tokens(text)
        after = [
            ids_after(prompt, await self._tokens(text + one), place, one)
            for place, one in enumerate(continuations)
        ]
        check_context(self.name, len(prompt), max(map(len, after)), self.context)
        scores = [await self._scored(prompt, ids) for ids in after]
        return response_of(len(prompt), after, scores)

    async def _scored(self, prompt: list[int], ids: list[int]) -> TokenScores:
        logprobs: list[float] = []
        greedy = True
        for place, token in enumerate(ids):
            asked: Json = {
                "prompt": [*prompt, *ids[:place]],
                "n_predict": 1,
                "n_probs": 1,
                "post_sampling_probs": False,
                "samplers": [],
                "logit_bias": [[token, _FORCED]],
                "cache_prompt": True,
            }
            one = await self._post("/completion", asked, partial(_score_of, token))
            logprobs += one.logprobs
            greedy &= one.greedy
        return TokenScores(logprobs, greedy)

    async def _tokens(self, text: str) -> list[int]:
        # The server adds a first token to a chat's prompt where the model has one.
        asked = {"content": text, "add_special": True, "parse_special": True}
        return await self._post("/tokenize", asked, _tokens)

    async def _post(self, path: str, asked: Json, read: Callable[[Json], T]) -> T:
        """What `read` makes of the answer; its AnswerInvalid becomes a MeshError."""

        def answer(raw: bytes) -> T:
            try:
                return read(read_answer(self.name, raw))
            except AnswerInvalid as error:
                raise answer_invalid(self.name, str(error)) from None

        return await self.http.post(
            f"{self.base}{path}",
            Sendable(lambda: dumps(asked)),
            max(self.deadline - asyncio.get_running_loop().time(), _LEAST_SECONDS),
            answer,
            self.headers,
            log=self.log,
        )


def _prompt_text(answer: Mapping[str, Any]) -> str:
    text = answer.get("prompt")
    if not isinstance(text, str):
        raise AnswerInvalid("the response has no 'prompt', which POST /apply-template must return")
    return text


def _tokens(answer: Mapping[str, Any]) -> list[int]:
    return unpack_ids(pack_ids(answer.get("tokens")))


def _score_of(token: int, answer: Mapping[str, Any]) -> TokenScores:
    try:
        [entry] = answer["completion_probabilities"]
        best = [one["logprob"] for one in entry["top_logprobs"]]
        found = scores_of([token], [(entry["id"], entry["logprob"], best)])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, AnswerInvalid):
            raise
        raise AnswerInvalid(
            "the response's 'completion_probabilities' must have exactly one token"
        ) from None
    if found.logprobs[0] < _UNDERFLOW:
        raise AnswerInvalid(
            f"token {token} is so improbable that the server reports no probability"
        )
    return found

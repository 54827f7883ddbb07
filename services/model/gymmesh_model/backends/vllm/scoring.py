"""Scores continuations at a vLLM server, which renders, tokenises and computes.

A call costs a rendering, a detokenisation, and a tokenisation of the prompt and of each text. Each
text also costs one request to `POST /v1/completions`. The requests are sent one after another,
because a call has only one place in the limit of concurrent calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from gymmesh.model.v1 import model_pb2
from gymmesh_model.backends.calls import CallWeights, RetryLog
from gymmesh_model.backends.chat import read_answer
from gymmesh_model.backends.endpoint import HttpEndpoint, Sendable
from gymmesh_model.backends.scores import (
    ids_after,
    prompt_not_exact,
    response_of,
    vllm_score_request,
    vllm_scores,
)
from gymmesh_model.backends.vllm.render import TOKENIZE, has_media, render_at
from gymmesh_model.errors import AnswerInvalid, answer_invalid, unsupported
from gymmesh_model.tokens import pack_ids
from gymmesh_responses import dumps, unpack_ids

T = TypeVar("T")
Json = dict[str, Any]
DETOKENIZE: Final = "/../detokenize"
_COMPLETIONS: Final = "/completions"
_LEAST_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class VllmScoring:
    """One call that scores continuations.

    Attributes:
        name: the model's name in the mesh, for errors.
        model: the model's name at the server; empty: the model that the server serves.
        render_path: where the server renders the conversation.
        deadline: a time of the event loop's clock.
        key: the rollout that needs the scores.
        log: where retries are recorded.
        weights: the weights that score. If they have an adapter, the adapter's name replaces the
            model's name.
    """

    http: HttpEndpoint
    name: str
    model: str
    render_path: str
    deadline: float
    key: str
    log: RetryLog | None
    weights: CallWeights | None

    async def run(
        self, body: Json, continuations: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        """The scores of texts after the conversation of a chat request. Raises MeshError."""
        if any(has_media(message) for message in body["messages"]):
            raise unsupported(
                "input",
                "continuations can be scored only if the input has no image or other medium",
            )
        packed = await render_at(
            self.http, self.name, self.render_path, self.key, self.deadline, body
        )
        prompt = unpack_ids(packed)
        text = await self._post(DETOKENIZE, {"tokens": prompt}, _prompt_text)
        if await self._tokens(text) != prompt:
            raise prompt_not_exact(self.name)
        after = [
            ids_after(prompt, await self._tokens(text + one), place, one)
            for place, one in enumerate(continuations)
        ]
        scores = [
            await self._post(
                _COMPLETIONS,
                vllm_score_request("", prompt, ids),
                partial(vllm_scores, prompt=len(prompt), after=ids),
            )
            for ids in after
        ]
        return response_of(len(prompt), after, scores)

    async def _tokens(self, text: str) -> list[int]:
        asked = {"prompt": text, "add_special_tokens": False}
        return await self._post(TOKENIZE, asked, _tokens)

    async def _post(self, path: str, asked: Json, read: Callable[[Json], T]) -> T:
        """The result of `read` for the answer. An AnswerInvalid of `read` becomes a MeshError."""

        def body() -> bytes:
            model = (self.weights.adapter if self.weights else "") or self.model
            return dumps({**asked, "model": model} if model else asked)

        def answer(raw: bytes) -> T:
            try:
                return read(read_answer(self.name, raw, self.http.secrets))
            except AnswerInvalid as error:
                raise answer_invalid(self.name, str(error)) from None

        return await self.http.post(
            path,
            Sendable(body, weights=self.weights),
            max(self.deadline - asyncio.get_running_loop().time(), _LEAST_SECONDS),
            answer,
            key=self.key,
            log=self.log,
            weights=self.weights,
        )


def _prompt_text(answer: Mapping[str, Any]) -> str:
    text = answer.get("prompt")
    if not isinstance(text, str):
        raise AnswerInvalid("the response has no 'prompt', which POST /detokenize must return")
    return text


def _tokens(answer: Mapping[str, Any]) -> list[int]:
    return unpack_ids(pack_ids(answer.get("tokens")))

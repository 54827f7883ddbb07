"""Finds out what a vLLM server can do beyond Chat Completions, with requests that cost the server
almost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.backends.endpoint import HttpEndpoint
from gymmesh_model.backends.vllm.render import RENDER, TOKENIZE
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.errors import MeshError

Json = dict[str, Any]
# The first is there with the scale-out endpoints, the second in development mode.
ABORTS: Final = ("/../inference/v1/abort_requests", "/../abort_requests")
_CHAT: Final = "/chat/completions"
# vLLM writes no log probability below it, not that of a token without any.
_IMPOSSIBLE: Final = -9999.0
_EXACT: Final = 1e-4
_MESSAGES: Final = [{"role": "user", "content": "hello"}]
# What only passes: the server is not up yet, or has too much to do. Anything else is an answer.
_LATER: Final = frozenset(
    (
        errors.ERROR_REASON_MODEL_UNREACHABLE,
        errors.ERROR_REASON_MODEL_TIMEOUT,
        errors.ERROR_REASON_MODEL_SERVER_ERROR,
        errors.ERROR_REASON_MODEL_RATE_LIMITED,
        errors.ERROR_REASON_MODEL_CREDENTIAL_REFUSED,
    )
)


@dataclass(frozen=True, slots=True)
class Probed:
    """takes_tokens: whether it accepts tokens as a chat's prompt. render_path: the path that
    renders conversations, or None.

    context_tokens: the context's size; 0 if not reported. abort_path: the path that stops calls,
    which then end with their output so far; or None.
    """

    takes_tokens: bool
    render_path: str | None = None
    context_tokens: int = 0
    abort_path: str | None = None


async def probe(http: HttpEndpoint, model: str, deadline: float) -> Probed:
    """What the server can do.

    model: the model's name at the server; empty: not known. deadline: of the event loop's clock.
    Raises MeshError if the server can't be probed now.
    """
    named: Json = {"model": model} if model else {}
    body = {**named, "messages": _MESSAGES}
    # An impossible id: a server that reads it refuses it by name, any other samples one token.
    never = {"max_tokens": 1, "kv_transfer_params": {"prompt_token_ids": [-1]}}
    taken = await _asked(http, _CHAT, {**body, **never}, deadline)
    if isinstance(taken, MeshError) and taken.reason in _LATER:
        raise taken
    if not isinstance(taken, MeshError) or "prompt_token_ids" not in taken.message:
        return Probed(takes_tokens=False)
    abort_path = None
    for path in ABORTS:
        # An id that no call has. With none at all, one of the two would stop every call.
        answer = await _asked(http, path, {"request_ids": ["none"]}, deadline)
        if not isinstance(answer, MeshError):
            abort_path = path
            break
    tokenized = await _asked(http, TOKENIZE, body, deadline)
    context = _said(tokenized, "max_model_len")
    context = context if isinstance(context, int) and context > 0 else 0
    rendered = await _asked(http, RENDER, body, deadline)
    render_path = TOKENIZE if isinstance(_said(tokenized, "tokens"), list) else None
    if isinstance(_said(rendered, "token_ids"), list):
        render_path = RENDER
    return Probed(True, render_path, context, abort_path)


async def probe_logprobs(
    http: HttpEndpoint, model: str, deadline: float
) -> tokens_pb2.LogprobDistribution.ValueType:
    """The distribution of the server's log probabilities, found by sampling one token.

    The request allows only the most probable token. So the second token has probability 0 in the
    sampling distribution, and more than 0 in the model's own distribution. UNSPECIFIED if neither
    is visible. Raises MeshError if the server can't be probed now.
    """
    body: Json = {"messages": _MESSAGES, "max_tokens": 1, "temperature": 1.0, "top_k": 1}
    named: Json = {"model": model} if model else {}
    answer = await _asked(
        http, _CHAT, {**named, **body, "logprobs": True, "top_logprobs": 2}, deadline
    )
    if isinstance(answer, MeshError) and answer.reason in _LATER:
        raise answer
    return distribution_of(*_first_two(answer))


def distribution_of(first: Any, second: Any) -> tokens_pb2.LogprobDistribution.ValueType:
    """The distribution, derived from the two highest log probabilities of a token that was sampled
    with `top_k` 1 at temperature 1. UNSPECIFIED if they don't show the distribution. Pure.
    """
    if not isinstance(first, float | int) or not isinstance(second, float | int):
        return tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED
    if second <= _IMPOSSIBLE and abs(first) < _EXACT:
        return tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
    # Logits, which a server may give instead, are seldom below zero both.
    if second < first < 0:
        return tokens_pb2.LOGPROB_DISTRIBUTION_RAW
    return tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED


def _first_two(answer: Mapping[str, Any] | MeshError) -> tuple[Any, Any]:
    """The two highest log probabilities at the first token; None for each that is missing."""
    try:
        [choice] = _said(answer, "choices")
        one, two = choice["logprobs"]["content"][0]["top_logprobs"][:2]
        return one["logprob"], two["logprob"]
    except (KeyError, IndexError, TypeError, ValueError):
        return None, None


async def _asked(
    http: HttpEndpoint, path: str, body: Json, deadline: float
) -> Mapping[str, Any] | MeshError:
    timeout = max(deadline - asyncio.get_running_loop().time(), 0.001)
    try:
        return await http.post(path, dumps(body), timeout, _read)
    except MeshError as error:
        return error


def _said(answer: Mapping[str, Any] | MeshError, key: str) -> Any:
    return None if isinstance(answer, MeshError) else answer.get(key)


def _read(raw: bytes) -> Mapping[str, Any]:
    try:
        answer = loads(raw)
    except CodecError:
        return {}
    return answer if isinstance(answer, Mapping) else {}

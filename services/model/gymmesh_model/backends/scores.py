"""Scores of continuations: how a text becomes token ids, and how scores are checked. Pure.

A continuation's ids are those that the prompt's text and the continuation, tokenised together, have
after the prompt's ids. Where the tokenizer joins characters across that boundary, no such ids
exist: the model, which writes after the prompt's ids, never writes them. The text is then refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_model.errors import AnswerInvalid, refused
from gymmesh_model.tokens import pack_ids, pack_logprobs
from gymmesh_responses import LOGPROB_ROUNDING
from gymmesh_runtime.errors import MeshError, field_invalid

MOST: Final = 256
"""The largest number of continuations that one call scores."""
# Characters of a text that an error shows.
_SHOWN: Final = 60
# How far two float32 log probabilities of one distribution are rounded apart.
_TIE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class TokenScores:
    """The scores of one continuation's tokens.

    Attributes:
        logprobs: the log probability of each token at temperature 1, before any cut.
        greedy: whether no token is more probable than each of them at its place.
    """

    logprobs: Sequence[float]
    greedy: bool


def check_continuations(texts: Sequence[str]) -> None:
    """Raises MeshError FIELD_INVALID for texts that no server scores."""
    if not texts:
        raise field_invalid("continuations", "is empty; give at least one text")
    if len(texts) > MOST:
        raise field_invalid(
            "continuations", f"has {len(texts)} texts; a call scores at most {MOST}"
        )
    for place, text in enumerate(texts):
        if not text:
            raise field_invalid(
                f"continuations[{place}]", "is empty; give a text with at least one token"
            )


def ids_after(prompt: Sequence[int], joint: Sequence[int], place: int, text: str) -> list[int]:
    """The ids of the continuation `text`, which is at `place` among the call's.

    prompt: the prompt's ids. joint: those of the prompt's text and `text` together.

    Raises MeshError FIELD_INVALID where the tokenizer joins both.
    """
    ids = list(joint[len(prompt) :])
    if ids and list(joint[: len(prompt)]) == list(prompt):
        return ids
    raise field_invalid(
        f"continuations[{place}]",
        f"({text[:_SHOWN]!r}) can't be scored: the tokenizer joins its first characters with the "
        "last characters of the prompt. End the prompt where a token ends: for example, remove the "
        "prompt's last space, and begin the text with a space",
    )


def prompt_not_exact(model: str) -> MeshError:
    """MODEL_REQUEST_REFUSED: the tokenizer gives other ids for the prompt's own text."""
    return refused(
        model,
        "the tokenizer does not return the prompt's token ids for the prompt's text, so the token "
        "ids of a continuation are unknown",
    )


def check_context(model: str, prompt: int, longest: int, context: int) -> None:
    """Raises MeshError MODEL_CONTEXT_EXCEEDED where prompt and continuation exceed the context.

    All are numbers of tokens; context 0: not known.
    """
    if context and prompt + longest > context:
        raise MeshError(
            errors.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
            f"the prompt ({prompt} tokens) and the longest continuation ({longest} tokens) "
            f"together exceed the context of model '{model}' ({context} tokens)",
            metadata={"model": model},
        )


def checked_scores(given: Any, tokens: int) -> TokenScores:
    """The scores of so many tokens. Raises AnswerInvalid where one is not a log probability."""
    if not isinstance(given, TokenScores):
        raise AnswerInvalid(
            f"`score` must return `TokenScores`, but returned {type(given).__name__}"
        )
    logprobs = [_logprob(one) for one in given.logprobs]
    if len(logprobs) != tokens:
        raise AnswerInvalid(
            f"the number of log probabilities in the response is {len(logprobs)}, but the number "
            f"of tokens is {tokens}"
        )
    return TokenScores(logprobs, bool(given.greedy))


def scores_of(ids: Sequence[int], entries: Sequence[tuple[Any, Any, Sequence[Any]]]) -> TokenScores:
    """The scores of a continuation's ids by what a server says of each of its last tokens.

    entries: by token, its id, its log probability, and those of the most probable tokens there.

    Raises AnswerInvalid for another token, or for what is not a log probability.
    """
    if len(entries) != len(ids):
        raise AnswerInvalid(
            f"the number of log probabilities in the response is {len(entries)}, but the number "
            f"of tokens is {len(ids)}"
        )
    logprobs: list[float] = []
    greedy = True
    for wanted, (token, logprob, best) in zip(ids, entries, strict=True):
        if token != wanted:
            raise AnswerInvalid(
                f"the response has a log probability of token {token!r:.20}, not of {wanted}"
            )
        logprobs.append(_logprob(logprob))
        # Logits, which a server may return instead, exceed 0 for the most probable token.
        greedy &= all(logprobs[-1] >= _logprob(one) - _TIE for one in best)
    return TokenScores(logprobs, greedy)


def response_of(
    prompt: int, continuations: Sequence[Sequence[int]], scores: Sequence[TokenScores]
) -> model_pb2.ScoreContinuationsResponse:
    """The contract's answer. prompt: how many tokens it has."""
    response = model_pb2.ScoreContinuationsResponse(prompt_tokens=prompt)
    for ids, one in zip(continuations, scores, strict=True):
        response.scores.add(
            token_ids=pack_ids(list(ids)),
            logprobs=pack_logprobs(list(one.logprobs)),
            greedy=one.greedy,
        )
    return response


def vllm_score_request(model: str, prompt: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    """The body of vLLM's `POST /v1/completions` for the log probabilities of ids after a prompt.

    vLLM computes them with the prompt, and samples at least one token.
    """
    body: dict[str, Any] = {"prompt": [*prompt, *after], "max_tokens": 1, "prompt_logprobs": 1}
    return body | ({"model": model} if model else {})


def vllm_scores(answer: Mapping[str, Any], prompt: int, after: Sequence[int]) -> TokenScores:
    """The scores in vLLM's answer to `vllm_score_request`. Raises AnswerInvalid.

    prompt: how many tokens it has.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    listed = choice.get("prompt_logprobs") if isinstance(choice, Mapping) else None
    tokens = prompt + len(after)
    if not isinstance(listed, list) or len(listed) != tokens:
        raise AnswerInvalid(
            "the response's prompt_logprobs must be a list with one entry for each of "
            f"{tokens} tokens"
        )
    entries: list[tuple[Any, Any, Sequence[Any]]] = []
    for wanted, found in zip(after, listed[prompt:], strict=True):
        known = found if isinstance(found, Mapping) else {}
        own = known.get(str(wanted))
        if not isinstance(own, Mapping):
            raise AnswerInvalid(f"the response's prompt_logprobs lack token {wanted}")
        best = [one.get("logprob") for one in known.values() if isinstance(one, Mapping)]
        entries.append((wanted, own.get("logprob"), best))
    return scores_of(after, entries)


def _logprob(given: Any) -> float:
    number = math.nan if isinstance(given, str | bytes | bool) else _number(given)
    if not (math.isfinite(number) and number <= LOGPROB_ROUNDING):
        raise AnswerInvalid(
            f"{given!r:.40} is not a log probability, which must be finite and at most 0"
        )
    return number


def _number(given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        return math.nan

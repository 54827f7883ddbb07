"""Checks what an engine of token ids gave, and says whose code failed."""

from __future__ import annotations

import math
import operator
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.errors import AnswerInvalid
from gymmesh_responses import LOGPROB_ROUNDING
from gymmesh_runtime.errors import MeshError, field_invalid, unforeseen
from gymmesh_runtime.text import describe, mask_secrets, place_of

_MOST_IDS: Final = 2**31  # ids travel as int32
_MOST_WORDS: Final = 300  # characters of a template's error
# What Jinja calls a template that was compiled from a text.
_TEMPLATE_FILES: Final = ("<template>", "<unknown>")


def engine_answer_invalid(model: str, cause: str) -> MeshError:
    """MODEL_ANSWER_INVALID for the result of a token engine."""
    return MeshError(
        errors.ERROR_REASON_MODEL_ANSWER_INVALID,
        f"the engine of model '{model}' returned an invalid answer: {cause}",
        metadata={"model": model, "cause": cause},
    )


def authors_fault(model: str, part: str, error: BaseException) -> MeshError:
    """INTERNAL_FAULT for an exception in the program's own code, with its text and place.

    part: what raised it, such as `engine`.
    """
    logged = unforeseen(error, f"the {part} of model '{model}'", authors=True)
    about = describe(error)
    place = f" at {about['at']}" if "at" in about else ""
    return MeshError(
        errors.ERROR_REASON_INTERNAL_FAULT,
        f"the {part} of model '{model}' raised {about['exception']}{place}",
        metadata={"model": model, **logged.metadata, **about},
    )


def checked_ids(given: Any) -> list[int]:
    """The sampled ids. Raises AnswerInvalid where there are none, or one is not a token id."""
    ids: list[int] = []
    for place, one in enumerate(_listed(given, "token_ids")):
        try:
            found = operator.index(one)
        except TypeError:
            found = -1
        if isinstance(one, bool) or not 0 <= found < _MOST_IDS:
            raise AnswerInvalid(
                f"token_ids[{place}] is {one!r:.40}, but a token id must be a whole "
                "number from 0 to "
                f"{_MOST_IDS - 1}"
            )
        ids.append(found)
    if not ids:
        raise AnswerInvalid(
            "the answer has no token ids; an answer needs at least the token id of its stop token"
        )
    return ids


def checked_logprobs(given: Any, tokens: int, *, trained: bool) -> list[float]:
    """The log probabilities of so many tokens, or none. Raises AnswerInvalid.

    trained: whether they may be trained on, so that each must be the logarithm of a probability.
    """
    logprobs: list[float] = []
    for place, one in enumerate(() if given is None else _listed(given, "logprobs")):
        try:
            number = math.nan if isinstance(one, str | bytes | bool) else float(one)
        except (TypeError, ValueError, OverflowError):
            raise AnswerInvalid(f"logprobs[{place}] is {one!r:.40}, not a number") from None
        if isinstance(one, str | bytes | bool):
            raise AnswerInvalid(f"logprobs[{place}] is {one!r:.40}, not a number")
        if trained and not (math.isfinite(number) and number <= LOGPROB_ROUNDING):
            raise AnswerInvalid(
                f"logprobs[{place}] is {number:g}, but a log probability must be finite "
                "and at most 0"
            )
        logprobs.append(number)
    if logprobs and len(logprobs) != tokens:
        raise AnswerInvalid(
            f"the number of log probabilities in the answer is {len(logprobs)}, but the number of "
            f"tokens is {tokens}"
        )
    return logprobs


def check_sampling(body: Mapping[str, Any]) -> None:
    """Raises MeshError FIELD_INVALID for a sampling parameter that no engine can follow."""
    for key, least, most in (("temperature", 0, None), ("top_p", 0, 1), ("min_p", 0, 1)):
        value = body.get(key)
        if value is None:
            continue
        fits = type(value) in (int, float) and math.isfinite(value) and value >= least
        if not fits or (most is not None and value > most):
            wanted = f"from {least} to {most}" if most is not None else f"of at least {least}"
            raise field_invalid(f"params.{key}", f"is {value!r:.40}; give a number {wanted}")
    for key, name, lowest in (
        ("max_tokens", "max_output_tokens", 1),
        ("top_k", "top_k", -1),
        ("seed", "seed", -math.inf),
    ):
        value = body.get(key)
        if value is not None and not (type(value) is int and value >= lowest):
            wanted = f" of at least {lowest}" if math.isfinite(lowest) else ""
            raise field_invalid(f"params.{name}", f"is {value!r:.40}; give a whole number{wanted}")


def template_problem(error: Exception) -> str:
    """What a chat template raised, and where: its own line, or the file and line of a tokenizer
    that is a program.
    """
    said = " ".join(str(error).split())[:_MOST_WORDS] or type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename in _TEMPLATE_FILES]
    line = lines[-1] if lines else getattr(error, "lineno", None)  # of a Jinja syntax error
    place = f"line {line} of the template" if line else place_of(error)
    return mask_secrets(f"the chat template: {said}") + (f" (at {place})" if place else "")


def _listed(given: Any, name: str) -> Sequence[Any]:
    if isinstance(given, str | bytes | Mapping):
        raise AnswerInvalid(f"the answer's {name} must be a list, not {type(given).__name__}")
    try:
        return list(given)
    except TypeError:
        raise AnswerInvalid(
            f"the answer's {name} must be a list, not {type(given).__name__}"
        ) from None

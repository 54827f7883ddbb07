"""What answers of such servers have alike, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.backends.generation import Generation
from gymmesh_model.backends.vllm import version_of
from gymmesh_model.errors import AnswerInvalid
from gymmesh_responses import Finish, finish_of

Json = dict[str, Any]
LogprobsOf: TypeAlias = "tokens_pb2.LogprobDistribution.ValueType"

UNKNOWN: Final = tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED
SAMPLING: Final = tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
RAW: Final = tokens_pb2.LOGPROB_DISTRIBUTION_RAW


def none_yet(ids: Any, finish_reason: object) -> Any:
    """The ids; none for an answer without them that was aborted before it began."""
    aborted = ids is None and finish_of(finish_reason) is Finish.ABORTED
    return [] if aborted else ids


def exact(ids: Any, logprobs: Any) -> tuple[list[int], list[float]]:
    """The ids and their log probabilities, checked."""
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise AnswerInvalid(
            "the response has no token ids; use a current version of vLLM or SGLang"
        )
    listed = isinstance(logprobs, Sequence)
    found = [float(one) for one in logprobs if isinstance(one, int | float)] if listed else []
    if not listed or len(found) < len(logprobs):
        raise AnswerInvalid("the response's log probabilities are not a list of numbers")
    if found and len(found) != len(ids):
        raise AnswerInvalid(
            f"the number of log probabilities in the response is {len(found)}, but the number of "
            f"tokens is {len(ids)}"
        )
    return ids, found


def spans_of(said: Any) -> list[tuple[int, int]]:
    """Versions of the weights with the first token of each; empty where one is not a number."""
    if not isinstance(said, list):
        return []
    spans: list[tuple[int, int]] = []
    for one in said:
        version = version_of(one.get("version")) if isinstance(one, Mapping) else None
        start = one.get("start") if isinstance(one, Mapping) else None
        if version is None or type(start) is not int:
            return []
        spans.append((version, start))
    return spans


def ended(
    ids: Sequence[int],
    logprobs: Sequence[float],
    finish_reason: object,
    versions: Sequence[tuple[int, int]],
    distribution: LogprobsOf,
) -> Generation:
    """The generation that an answer is, an aborted one's beginning too.

    Raises MeshError as `Generation.ended`.
    """
    if finish_of(finish_reason) is Finish.ABORTED:
        return Generation(ids, logprobs, False, versions, distribution, aborted=True)
    made = Generation.ended(ids, logprobs, finish_reason)
    return Generation(made.token_ids, made.logprobs, made.finished, versions, distribution)

"""Texts that a model scored: their scores, and the best text. Nothing is sampled. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import TOKEN_BYTES, item_from_json, unpack_logprobs
from gymmesh_runtime.errors import MeshError

ScoredChoice: TypeAlias = "rollout_pb2.ScoredChoice"
Normalize = Literal["none", "tokens", "bytes"]
NORMALIZE: Final[tuple[Normalize, ...]] = get_args(Normalize)


def read_scores(
    reply: model_pb2.ScoreContinuationsResponse, texts: Sequence[str]
) -> list[ScoredChoice]:
    """The scores of texts, in their order.

    Raises:
        MeshError: CONTRACT_VIOLATED for scores that do not fit the texts, or that are not finite.
    """
    if len(reply.scores) != len(texts):
        raise _violated(f"{len(reply.scores)} scores for {len(texts)} texts")
    return [_choice(text, score) for text, score in zip(texts, reply.scores, strict=True)]


def best_of(choices: Sequence[ScoredChoice], normalize: Normalize) -> int:
    """The index of the best choice; the first of several choices with the same score.

    Args:
        normalize: what a choice's log probability is divided by: nothing, the number of its tokens,
            or the number of its UTF-8 bytes.
    """

    def score(place: int) -> float:
        choice = choices[place]
        if normalize == "tokens":
            return choice.logprob / choice.tokens
        if normalize == "bytes":
            return choice.logprob / len(choice.text.encode())
        return choice.logprob

    return max(range(len(choices)), key=score)


def chosen_answer(
    reply: model_pb2.ScoreContinuationsResponse, call_id: str, text: str
) -> model_pb2.CreateResponseResponse:
    """The reply of a model that answered with a text. Nothing was sampled, so the reply has no
    output tokens.
    """
    answer = model_pb2.CreateResponseResponse(call_id=call_id, queue_us=reply.queue_us)
    response = answer.response
    response.id = f"scored-{call_id}"
    response.status = "completed"
    content = [{"type": "output_text", "text": text, "annotations": []}]
    said = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    response.output.append(item_from_json({**said, "id": f"msg-{call_id}"}))
    response.usage.input_tokens = response.usage.total_tokens = reply.prompt_tokens
    response.usage.output_tokens = 0
    if reply.HasField("weights_version"):
        answer.tokens.weights.add(version=reply.weights_version)
    return answer


def _choice(text: str, score: model_pb2.ContinuationScore) -> ScoredChoice:
    tokens = len(score.token_ids) // TOKEN_BYTES
    if not tokens or len(score.logprobs) != len(score.token_ids):
        raise _violated(
            f"a choice has {len(score.logprobs)} bytes of log probabilities for {tokens} tokens"
        )
    total = math.fsum(unpack_logprobs(score.logprobs))
    if not math.isfinite(total):
        raise _violated("a log probability is not finite")
    return rollout_pb2.ScoredChoice(text=text, logprob=total, tokens=tokens, greedy=score.greedy)


def _violated(problem: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
        f"the model service's scores can't be used: {problem}",
        metadata={"rule": "scores"},
    )

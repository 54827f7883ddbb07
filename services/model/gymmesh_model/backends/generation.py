"""The parameters of an engine of token ids, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.errors import answer_failed
from gymmesh_model.tokens import SideRows
from gymmesh_responses import Finish, finish_of

_UNKNOWN: Final = tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to sample. None: the engine's own default.

    Attributes:
        max_tokens: the most tokens to sample.
        stop: texts that end the answer.
        stop_token_ids: ids that end the answer, for engines that don't know the tokenizer.
        request_id: the rollout's id, the same for all its calls: for engines that keep prefixes.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    request_id: str = ""

    def as_dict(self, **names: str) -> dict[str, Any]:
        """The parameters that are set, without `request_id` and `stop_token_ids`.

        names: new names for keys, such as `max_tokens="max_new"`.
        """
        keys = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "seed")
        found = {names.get(key, key): getattr(self, key) for key in keys}
        found = {key: value for key, value in found.items() if value is not None}
        return found | ({"stop": list(self.stop)} if self.stop else {})


@dataclass(frozen=True, slots=True)
class Generation:
    """What an engine sampled.

    Attributes:
        token_ids: the sampled ids, including the stop token if one was sampled.
        logprobs: one for each id; empty if the engine returns none.
        finished: whether the model ended its answer; None: it did if the last id is a stop token.
        weights: for each version of the weights: the version, the first token that it sampled, and
            the adapter's name if an adapter was used; empty: the announced version sampled all.
        distribution: the distribution of the log probabilities; unspecified: the backend's
            `logprob_distribution`.
        constrained: ranges of the ids that were not sampled freely, in order.
        side_data: rows of side data for the tokens. They are required for each name in `side_data`
            of the TokenBackend; other names are ignored. Positions count from the prompt's first
            token.
        aborted: whether the engine was stopped, so that this is only the beginning of an answer. A
            function `generate` can't return such an answer: the call fails.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[float] = ()
    finished: bool | None = None
    weights: Sequence[tuple[int, int] | tuple[int, int, str]] = field(default=())
    distribution: tokens_pb2.LogprobDistribution.ValueType = _UNKNOWN
    constrained: Sequence[tokens_pb2.ConstrainedSpan] = field(default=())
    side_data: Sequence[SideRows] = field(default=())
    aborted: bool = False

    @staticmethod
    def ended(
        token_ids: Sequence[int], logprobs: Sequence[float], finish_reason: object
    ) -> Generation:
        """The result of an engine that reports a finish reason, in any usual spelling.

        Raises MeshError MODEL_SERVER_ERROR if the reason is a failure or an abort.
        """
        finish = finish_of(finish_reason)
        if finish in (Finish.FAILED, Finish.ABORTED):
            raise answer_failed("policy", finish_reason)
        if finish is Finish.UNKNOWN:
            return Generation(token_ids, logprobs)
        return Generation(token_ids, logprobs, finished=finish is Finish.DONE)

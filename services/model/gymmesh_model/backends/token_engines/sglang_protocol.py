"""How SGLang is asked to sample and score token ids, and how its answers read. Pure.

Facts: `POST /generate` (`input_ids`, `meta_info.output_token_logprobs`; to score,
`logprob_start_len` and `meta_info.input_token_logprobs`). Routed experts: routed_experts.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.routed_experts import ROUTED_EXPERTS, int32_experts
from gymmesh_model.backends.scores import TokenScores, scores_of
from gymmesh_model.backends.token_engines.answers import (
    RAW,
    SAMPLING,
    UNKNOWN,
    Json,
    LogprobsOf,
    ended,
    exact,
    none_yet,
    spans_of,
)
from gymmesh_model.backends.token_engines.protocol import TokenProtocol
from gymmesh_model.backends.vllm import version_of
from gymmesh_model.errors import AnswerInvalid
from gymmesh_model.tokens import SideRows


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangGenerate(TokenProtocol):
    """SGLang's `POST /generate`.

    Attributes:
        priority: of requests, where the server schedules by priority; 0: not said.
        original_logprobs: whether the server runs with `SGLANG_RETURN_ORIGINAL_LOGPROB`.
        experts: the shape of a token's routed experts, which SGLang does not say: the model's
            layers and experts per token; None: the server gives none.
    """

    # Beside the base URL's last segment, so that `http://host:30000/v1` works, too.
    path: ClassVar[str] = "/../generate"
    abort_path: ClassVar[str] = "/../abort_request"
    reports_last_version: ClassVar[bool] = True
    priority: int = 0
    original_logprobs: bool = False
    experts: tuple[int, int] | None = None

    @property
    def side_data(self) -> Sequence[str]:
        return (ROUTED_EXPERTS,) if self.experts else ()

    def request(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        request_id: str,
        *,
        logprobs: bool,
        adapter: str = "",
        experts_from: int | None = None,
    ) -> Json:
        sampling = params.as_dict(seed="sampling_seed")
        sampling.pop("max_tokens", None)
        # Without the key SGLang samples 128 tokens; null is as many as the context has room for.
        sampling["max_new_tokens"] = params.max_tokens
        if params.stop_token_ids:
            sampling["stop_token_ids"] = list(params.stop_token_ids)
        body: Json = {
            "rid": request_id,
            "input_ids": list(prompt),
            "sampling_params": sampling,
            "return_logprob": logprobs,
        }
        if experts_from is not None:
            body |= {"return_routed_experts": True, "routed_experts_start_len": experts_from}
        if adapter:
            body["lora_path"] = adapter  # it names a loaded one
        return body | ({"priority": self.priority} if self.priority else {})

    def routed_experts(
        self, answer: Mapping[str, Any], prompt: int, sampled: int, first: int
    ) -> SideRows:
        assert self.experts is not None  # only then they are asked for
        return int32_experts(_meta(answer), self.experts, prompt, sampled, first)

    def finish_reason(self, answer: Mapping[str, Any]) -> object:
        said = _meta(answer).get("finish_reason")
        return said.get("type") if isinstance(said, Mapping) else said

    def generation(
        self, answer: Mapping[str, Any], prompt: Sequence[int], params: SamplingParams
    ) -> Generation:
        meta = _meta(answer)
        read = meta.get("prompt_tokens")
        if isinstance(read, int) and read != len(prompt):
            raise AnswerInvalid(
                f"the server read {read} prompt tokens, but {len(prompt)} tokens were sent"
            )
        ids, entries = answer.get("output_ids"), meta.get("output_token_logprobs")
        logprobs: Sequence[Any] = ()
        if entries:
            try:
                logprobs = [entry[0] for entry in entries]
                sampled = [entry[1] for entry in entries]
            except (TypeError, IndexError, KeyError):
                raise AnswerInvalid("the response's output_token_logprobs are not lists") from None
            if ids is not None and ids != sampled:
                raise AnswerInvalid(
                    "the response's output_ids differ from the ids of its log probabilities"
                )
            ids = sampled
        ids, logprobs = exact(none_yet(ids, self.finish_reason(answer)), logprobs)
        versions = spans_of(meta.get("weight_versions"))
        if not versions and (version := version_of(meta.get("weight_version"))) is not None:
            versions = [(version, 0)]
        finish = self.finish_reason(answer)
        return ended(
            ids, logprobs, finish, versions, self._distribution(params) if logprobs else UNKNOWN
        )

    def score_request(
        self, prompt: Sequence[int], after: Sequence[int], request_id: str, *, adapter: str = ""
    ) -> Json:
        body: Json = {
            "rid": request_id,
            "input_ids": [*prompt, *after],
            "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
            "return_logprob": True,
            # The first of the tokens that are returned has no log probability.
            "logprob_start_len": len(prompt) - 1,
            "top_logprobs_num": 1,
        }
        if adapter:
            body["lora_path"] = adapter
        return body | ({"priority": self.priority} if self.priority else {})

    def scores(
        self, answer: Mapping[str, Any], prompt: Sequence[int], after: Sequence[int]
    ) -> TokenScores:
        meta = _meta(answer)
        read = meta.get("prompt_tokens")
        if isinstance(read, int) and read != len(prompt) + len(after):
            raise AnswerInvalid(
                f"the server read {read} tokens, but {len(prompt) + len(after)} tokens were sent"
            )
        own, best = meta.get("input_token_logprobs"), meta.get("input_top_logprobs")
        if not isinstance(own, list) or not isinstance(best, list):
            raise AnswerInvalid("the response has no input_token_logprobs and input_top_logprobs")
        try:
            last = zip(own[-len(after) :], best[-len(after) :], strict=True)
            entries = [(one[1], one[0], [other[0] for other in tops]) for one, tops in last]
        except (TypeError, IndexError, KeyError, ValueError):
            raise AnswerInvalid("the response's input_token_logprobs are not lists") from None
        return scores_of(after, entries)

    def _distribution(self, params: SamplingParams) -> LogprobsOf:
        """SGLang's are of the distribution after the temperature and before any cut; of greedy
        samples, of the model's own.
        """
        if self.original_logprobs or params.temperature == 0:
            return RAW
        top_p = 1.0 if params.top_p is None else params.top_p
        is_cut = top_p < 1.0 or bool(params.min_p) or (params.top_k or -1) > 0
        return UNKNOWN if is_cut else SAMPLING


def _meta(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = answer.get("meta_info")
    if not isinstance(meta, Mapping):
        raise AnswerInvalid("the response has no meta_info")
    return meta

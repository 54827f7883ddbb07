"""How vLLM is asked to sample and score token ids, and how its answers read. Pure.

Facts: `POST /v1/completions` (a prompt may be a list of ids; `return_token_ids`, and for versions
without it `return_tokens_as_token_ids`) and `POST /inference/v1/generate`. Routed experts:
routed_experts.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.routed_experts import npy_experts
from gymmesh_model.backends.scores import TokenScores, vllm_score_request, vllm_scores
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
from gymmesh_model.backends.vllm import distribution_of
from gymmesh_model.errors import AnswerInvalid
from gymmesh_model.tokens import SideRows

LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]

_TOKEN_ID: Final = "token_id:"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmCompletions(TokenProtocol):
    """vLLM's `POST /v1/completions`.

    Attributes:
        model: its name at the server; empty: the one that it serves.
        priority: of requests, where the server schedules by priority; 0: not said.
        logprobs_mode: the server's `--logprobs-mode`; None: found out by `probe`.
        side_data: as the server gives it: `routed_experts` with `--enable-return-routed-experts`.
    """

    path: ClassVar[str] = "/completions"
    model: str = ""
    priority: int = 0
    logprobs_mode: LogprobsMode | None = None
    side_data: Sequence[str] = ()

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
        body: Json = {
            "prompt": list(prompt),
            # Without the key vLLM samples 16 tokens; null is as many as the context has room for.
            "max_tokens": params.max_tokens,
            "return_token_ids": True,
        }
        body |= {
            key: value for key, value in params.as_dict().items() if key not in ("max_tokens",)
        }
        if adapter or self.model:
            body["model"] = adapter or self.model
        if params.stop_token_ids:
            body["stop_token_ids"] = list(params.stop_token_ids)
        if self.priority:
            body["priority"] = self.priority
        if logprobs:
            # 0: of the sampled token alone.
            body |= {"logprobs": 0, "return_tokens_as_token_ids": True}
        if experts_from:
            body["routed_experts_prompt_start"] = experts_from
        return body

    def finish_reason(self, answer: Mapping[str, Any]) -> object:
        return _vllm_choice(answer).get("finish_reason")

    def generation(
        self, answer: Mapping[str, Any], prompt: Sequence[int], params: SamplingParams
    ) -> Generation:
        choice = _vllm_choice(answer)
        read = choice.get("prompt_token_ids")
        if read is not None and read != prompt:
            raise AnswerInvalid("the server's prompt differs from the token ids that it was sent")
        given = choice.get("logprobs")
        given = given if isinstance(given, Mapping) else {}
        ids = choice.get("token_ids")
        if ids is None:
            ids = _ids_of_words(given.get("tokens"))
        logprobs = given.get("token_logprobs") or ()
        ids, logprobs = exact(none_yet(ids, choice.get("finish_reason")), logprobs)
        return ended(
            ids,
            logprobs,
            choice.get("finish_reason"),
            spans_of(choice.get("weight_versions")),
            self._distribution() if logprobs else UNKNOWN,
        )

    def score_request(
        self, prompt: Sequence[int], after: Sequence[int], request_id: str, *, adapter: str = ""
    ) -> Json:
        return vllm_score_request(adapter or self.model, prompt, after) | (
            {"priority": self.priority} if self.priority else {}
        )

    def scores(
        self, answer: Mapping[str, Any], prompt: Sequence[int], after: Sequence[int]
    ) -> TokenScores:
        return vllm_scores(answer, len(prompt), after)

    def routed_experts(
        self, answer: Mapping[str, Any], prompt: int, sampled: int, first: int
    ) -> SideRows:
        return npy_experts(answer, _vllm_choice(answer), prompt, sampled, first)

    def probe(self) -> Json | None:
        if self.logprobs_mode is not None:
            return None
        # Only the first of two tokens may be drawn: the second's log probability tells.
        body: Json = {"prompt": [0], "max_tokens": 1, "temperature": 1.0, "top_k": 1, "logprobs": 2}
        return body | ({"model": self.model} if self.model else {})

    def probed(self, answer: Mapping[str, Any]) -> LogprobsOf:
        given = _vllm_choice(answer).get("logprobs")
        listed = given.get("top_logprobs") if isinstance(given, Mapping) else None
        if not isinstance(listed, list) or not listed or not isinstance(listed[0], Mapping):
            return UNKNOWN
        found = [one for one in listed[0].values() if isinstance(one, int | float)]
        first_two = sorted(found, reverse=True)[:2]
        return distribution_of(*first_two) if len(first_two) == 2 else UNKNOWN

    def _distribution(self) -> LogprobsOf:
        if self.logprobs_mode is None:
            return UNKNOWN
        return SAMPLING if self.logprobs_mode == "processed_logprobs" else RAW


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmGenerate(VllmCompletions):
    """vLLM's `POST /inference/v1/generate` (0.32 and later, `--enable-scale-out`), whose answers
    say which weights sampled each token. Parameters that a call leaves out are the engine's own
    defaults, not those of the model's generation_config.json.
    """

    path: ClassVar[str] = "/../inference/v1/generate"

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
        sampling = params.as_dict()
        if params.stop_token_ids:
            sampling["stop_token_ids"] = list(params.stop_token_ids)
        if logprobs:
            sampling["logprobs"] = 0  # of the sampled token alone
        body: Json = {
            "request_id": request_id,
            "token_ids": list(prompt),
            "sampling_params": sampling,
        }
        if adapter or self.model:
            body["model"] = adapter or self.model
        return body | ({"priority": self.priority} if self.priority else {})

    def generation(
        self, answer: Mapping[str, Any], prompt: Sequence[int], params: SamplingParams
    ) -> Generation:
        choice = _vllm_choice(answer)
        entries = _entries(choice.get("logprobs"))
        ids = none_yet(choice.get("token_ids"), choice.get("finish_reason"))
        ids, logprobs = exact(ids, [one.get("logprob") for one in entries])
        if entries and [one.get("token_id") for one in entries] != ids:
            raise AnswerInvalid(
                "the response's token_ids differ from the ids of its log probabilities"
            )
        return ended(
            ids,
            logprobs,
            choice.get("finish_reason"),
            spans_of(choice.get("weight_versions")),
            self._distribution() if logprobs else UNKNOWN,
        )

    def score_request(
        self, prompt: Sequence[int], after: Sequence[int], request_id: str, *, adapter: str = ""
    ) -> Json:
        body: Json = {
            "request_id": request_id,
            "token_ids": [*prompt, *after],
            "sampling_params": {"max_tokens": 1, "prompt_logprobs": 1},
        }
        if adapter or self.model:
            body["model"] = adapter or self.model
        return body | ({"priority": self.priority} if self.priority else {})

    def scores(
        self, answer: Mapping[str, Any], prompt: Sequence[int], after: Sequence[int]
    ) -> TokenScores:
        # Beside the choices here.
        return vllm_scores({"choices": [answer]}, len(prompt), after)

    def probe(self) -> Json | None:
        if self.logprobs_mode is not None:
            return None
        sampling = {"max_tokens": 1, "temperature": 1.0, "top_k": 1, "logprobs": 2}
        body: Json = {"token_ids": [0], "sampling_params": sampling}
        return body | ({"model": self.model} if self.model else {})

    def probed(self, answer: Mapping[str, Any]) -> LogprobsOf:
        entries = _entries(_vllm_choice(answer).get("logprobs"))
        listed = entries[0].get("top_logprobs") if entries else None
        tops = listed if isinstance(listed, list) else []
        found = {
            one.get("token_id"): one.get("logprob") for one in tops if isinstance(one, Mapping)
        }
        values = [one for one in found.values() if isinstance(one, int | float)]
        first_two = sorted(values, reverse=True)[:2]
        return distribution_of(*first_two) if len(first_two) == 2 else UNKNOWN


def _vllm_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise AnswerInvalid("the response must have exactly one choice")
    return choices[0]


def _entries(said: Any) -> list[Mapping[str, Any]]:
    """What vLLM's generate says of each sampled token. Raises AnswerInvalid."""
    content = said.get("content") if isinstance(said, Mapping) else None
    if content is None:
        return []
    if not isinstance(content, list) or not all(isinstance(one, Mapping) for one in content):
        raise AnswerInvalid("the response's log probabilities are not a list of objects")
    return content


def _ids_of_words(words: Any) -> list[int] | None:
    """The ids of tokens that are spelled `token_id:17`; None where one is not."""
    if not isinstance(words, list):
        return None
    found: list[int] = []
    for word in words:
        number = word.removeprefix(_TOKEN_ID) if isinstance(word, str) else ""
        if not number.isdecimal() or number == word:
            return None
        found.append(int(number))
    return found

"""How vLLM and SGLang are asked to sample and score token ids, and how their answers read. Pure.

The ids of an answer are those that the server sampled, never ids of its text: an answer without
them is refused.

Facts: vLLM's `POST /v1/completions` (a prompt may be a list of ids; `return_token_ids`, and for
versions without it `return_tokens_as_token_ids`) and `POST /inference/v1/generate`; SGLang's
`POST /generate` (`input_ids`, `meta_info.output_token_logprobs`; to score, `logprob_start_len` and
`meta_info.input_token_logprobs`). Routed experts: routed_experts.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.routed_experts import ROUTED_EXPERTS, int32_experts, npy_experts
from gymmesh_model.backends.scores import (
    TokenScores,
    scores_of,
    vllm_score_request,
    vllm_scores,
)
from gymmesh_model.backends.vllm import distribution_of, version_of
from gymmesh_model.errors import AnswerInvalid
from gymmesh_model.tokens import SideRows
from gymmesh_responses import Finish, finish_of

Json = dict[str, Any]
LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]
LogprobsOf: TypeAlias = "tokens_pb2.LogprobDistribution.ValueType"

_UNKNOWN: Final = tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED
_SAMPLING: Final = tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
_RAW: Final = tokens_pb2.LOGPROB_DISTRIBUTION_RAW
_TOKEN_ID: Final = "token_id:"


class TokenProtocol(ABC):
    """One server's requests and answers.

    Attributes:
        path: where it samples, see `PoolEndpoint.at`.
        abort_path: where a request is aborted by its id; empty: closing its connection does it.
        reports_last_version: whether an answer may only say which weights were there at its end.
    """

    path: ClassVar[str]
    abort_path: ClassVar[str] = ""
    reports_last_version: ClassVar[bool] = False

    @property
    def side_data(self) -> Sequence[str]:
        """The names of side data that the server's answers can have."""
        return ()

    @abstractmethod
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
        """The body that asks for an answer to a prompt.

        logprobs: whether they are wanted. adapter: the name of the adapter that answers; empty: the
        model itself. experts_from: the first token whose routed experts are wanted; None: none are.
        """

    @abstractmethod
    def finish_reason(self, answer: Mapping[str, Any]) -> object:
        """Why the answer ended, in the server's words. Raises AnswerInvalid."""

    @abstractmethod
    def generation(
        self, answer: Mapping[str, Any], prompt: Sequence[int], params: SamplingParams
    ) -> Generation:
        """What the server sampled, an aborted answer's beginning too. Raises AnswerInvalid for what
        is not exact, and MeshError for an answer that the server says is a failure.
        """

    @abstractmethod
    def score_request(
        self, prompt: Sequence[int], after: Sequence[int], request_id: str, *, adapter: str = ""
    ) -> Json:
        """The body that asks for the log probabilities of ids after a prompt."""

    @abstractmethod
    def scores(
        self, answer: Mapping[str, Any], prompt: Sequence[int], after: Sequence[int]
    ) -> TokenScores:
        """The scores in the answer to `score_request`. Raises AnswerInvalid."""

    @abstractmethod
    def routed_experts(
        self, answer: Mapping[str, Any], prompt: int, sampled: int, first: int
    ) -> SideRows:
        """The routed experts in an answer. Raises AnswerInvalid, also where there are none.

        prompt, sampled: how many tokens. first: as the request's `experts_from`.
        """

    def probe(self) -> Json | None:
        """The body of one cheap request whose answer shows which distribution the server's log
        probabilities are of; None where that needs none.
        """
        return None

    def probed(self, answer: Mapping[str, Any]) -> LogprobsOf:
        """What the answer to `probe` shows. Raises AnswerInvalid."""
        return _UNKNOWN


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
        ids, logprobs = _exact(_none_yet(ids, choice.get("finish_reason")), logprobs)
        return _ended(
            ids,
            logprobs,
            choice.get("finish_reason"),
            _spans(choice.get("weight_versions")),
            self._distribution() if logprobs else _UNKNOWN,
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
            return _UNKNOWN
        found = [one for one in listed[0].values() if isinstance(one, int | float)]
        first_two = sorted(found, reverse=True)[:2]
        return distribution_of(*first_two) if len(first_two) == 2 else _UNKNOWN

    def _distribution(self) -> LogprobsOf:
        if self.logprobs_mode is None:
            return _UNKNOWN
        return _SAMPLING if self.logprobs_mode == "processed_logprobs" else _RAW


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
        ids = _none_yet(choice.get("token_ids"), choice.get("finish_reason"))
        ids, logprobs = _exact(ids, [one.get("logprob") for one in entries])
        if entries and [one.get("token_id") for one in entries] != ids:
            raise AnswerInvalid("its token_ids differ from the ids of its log probabilities")
        return _ended(
            ids,
            logprobs,
            choice.get("finish_reason"),
            _spans(choice.get("weight_versions")),
            self._distribution() if logprobs else _UNKNOWN,
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
        return distribution_of(*first_two) if len(first_two) == 2 else _UNKNOWN


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
            raise AnswerInvalid(f"the server read {read} prompt tokens but was sent {len(prompt)}")
        ids, entries = answer.get("output_ids"), meta.get("output_token_logprobs")
        logprobs: Sequence[Any] = ()
        if entries:
            try:
                logprobs = [entry[0] for entry in entries]
                sampled = [entry[1] for entry in entries]
            except (TypeError, IndexError, KeyError):
                raise AnswerInvalid("its output_token_logprobs are not lists") from None
            if ids is not None and ids != sampled:
                raise AnswerInvalid("its output_ids differ from the ids of its log probabilities")
            ids = sampled
        ids, logprobs = _exact(_none_yet(ids, self.finish_reason(answer)), logprobs)
        versions = _spans(meta.get("weight_versions"))
        if not versions and (version := version_of(meta.get("weight_version"))) is not None:
            versions = [(version, 0)]
        finish = self.finish_reason(answer)
        return _ended(
            ids, logprobs, finish, versions, self._distribution(params) if logprobs else _UNKNOWN
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
            raise AnswerInvalid(f"the server read {read} tokens, not {len(prompt) + len(after)}")
        own, best = meta.get("input_token_logprobs"), meta.get("input_top_logprobs")
        if not isinstance(own, list) or not isinstance(best, list):
            raise AnswerInvalid("it has no input_token_logprobs and input_top_logprobs")
        try:
            last = zip(own[-len(after) :], best[-len(after) :], strict=True)
            entries = [(one[1], one[0], [other[0] for other in tops]) for one, tops in last]
        except (TypeError, IndexError, KeyError, ValueError):
            raise AnswerInvalid("its input_token_logprobs are not lists") from None
        return scores_of(after, entries)

    def _distribution(self, params: SamplingParams) -> LogprobsOf:
        """SGLang's are of the distribution after the temperature and before any cut; of greedy
        samples, of the model's own.
        """
        if self.original_logprobs or params.temperature == 0:
            return _RAW
        top_p = 1.0 if params.top_p is None else params.top_p
        is_cut = top_p < 1.0 or bool(params.min_p) or (params.top_k or -1) > 0
        return _UNKNOWN if is_cut else _SAMPLING


def _vllm_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise AnswerInvalid("it must have exactly one choice")
    return choices[0]


def _entries(said: Any) -> list[Mapping[str, Any]]:
    """What vLLM's generate says of each sampled token. Raises AnswerInvalid."""
    content = said.get("content") if isinstance(said, Mapping) else None
    if content is None:
        return []
    if not isinstance(content, list) or not all(isinstance(one, Mapping) for one in content):
        raise AnswerInvalid("its log probabilities are not a list of objects")
    return content


def _meta(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = answer.get("meta_info")
    if not isinstance(meta, Mapping):
        raise AnswerInvalid("it has no meta_info")
    return meta


def _none_yet(ids: Any, finish_reason: object) -> Any:
    """The ids; none for an answer without them that was aborted before it began."""
    aborted = ids is None and finish_of(finish_reason) is Finish.ABORTED
    return [] if aborted else ids


def _exact(ids: Any, logprobs: Any) -> tuple[list[int], list[float]]:
    """The ids and their log probabilities, checked."""
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise AnswerInvalid("it has no token ids; use a current version of vLLM or SGLang")
    listed = isinstance(logprobs, Sequence)
    found = [float(one) for one in logprobs if isinstance(one, int | float)] if listed else []
    if not listed or len(found) < len(logprobs):
        raise AnswerInvalid("its log probabilities are not a list of numbers")
    if found and len(found) != len(ids):
        raise AnswerInvalid(f"it has {len(found)} log probabilities for {len(ids)} tokens")
    return ids, found


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


def _spans(said: Any) -> list[tuple[int, int]]:
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


def _ended(
    ids: Sequence[int],
    logprobs: Sequence[float],
    finish_reason: object,
    versions: Sequence[tuple[int, int]],
    distribution: LogprobsOf,
) -> Generation:
    if finish_of(finish_reason) is Finish.ABORTED:
        return Generation(ids, logprobs, False, versions, distribution, aborted=True)
    made = Generation.ended(ids, logprobs, finish_reason)
    return Generation(made.token_ids, made.logprobs, made.finished, versions, distribution)

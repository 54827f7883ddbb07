"""The tokens in vLLM's answers, whole and streamed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.backends.answers import ChatFold
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.chat import ChatReader
from gymmesh_model.backends.routed_experts import ROUTED_EXPERTS, npy_experts
from gymmesh_model.backends.vllm.weights import version_of
from gymmesh_model.errors import AnswerInvalid, answer_invalid
from gymmesh_model.tokens import (
    Prefix,
    Rendered,
    Rewritten,
    Tail,
    TokenRecord,
    count,
    pack_ids,
    pack_logprobs,
    picked,
    rendered,
)
from gymmesh_responses import TOKEN_BYTES, Finish, common_tokens, finish_of, unpack_ids

Json = dict[str, Any]


# Each asks vLLM to sample by a grammar; older servers know the latter names.
_GRAMMARS: Final = ("structured_outputs", "guided_json", "guided_regex", "guided_choice",
                    "guided_grammar", "structural_tag")  # fmt: skip


def constraint_of(body: Mapping[str, Any]) -> tokens_pb2.Constraint.ValueType:
    """The constraint on sampling the answer to a chat request; UNSPECIFIED: the answer is sampled
    freely.
    """
    choice, form = body.get("tool_choice"), body.get("response_format")
    forced = choice == "required"
    if isinstance(choice, Mapping):
        allowed = choice.get("allowed_tools")
        forced = not isinstance(allowed, Mapping) or allowed.get("mode") == "required"
    formed = isinstance(form, Mapping) and form.get("type") != "text"
    if forced or formed or any(body.get(key) is not None for key in _GRAMMARS):
        return tokens_pb2.CONSTRAINT_GRAMMAR
    return tokens_pb2.CONSTRAINT_UNSPECIFIED


class PromptIgnored(Exception):
    """The server read a prompt that differs from the tokens that it was sent."""


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """How a call's prompt is sent, what is known before the call, and where the tokens are stored.

    record: where the tokens are stored; None: no tokens are captured. prompt: the tokens to send;
    None: messages. rendered: how the template renders the whole of such a prompt. reason, detail:
    if messages are sent, those of the fork that may follow. keep_logprobs: whether the log
    probabilities also stay in the answer.
    """

    record: TokenRecord | None
    prefix: Prefix | None
    keep_logprobs: bool = False
    prompt: bytes | None = None
    rendered: Rendered | None = None
    reason: tokens_pb2.ForkReason.ValueType = tokens_pb2.FORK_REASON_UNSPECIFIED
    detail: str = ""

    @staticmethod
    def of(call: BackendCall, *, keep_logprobs: bool = False) -> CapturePlan:
        """A plan that sends messages, with the fork reason that is already known."""
        plan = CapturePlan(call.record, call.prefix, keep_logprobs)
        if plan.prefix is None or not plan.prefix.rewritten:
            return plan
        detail = "the caller changed items whose tokens are already known"
        return plan.forked(detail, tokens_pb2.FORK_REASON_HISTORY_REWRITTEN)

    def forked(
        self,
        detail: str,
        reason: tokens_pb2.ForkReason.ValueType = tokens_pb2.FORK_REASON_BACKEND,
    ) -> CapturePlan:
        """The plan that sends messages, and the reason why tokens can't be sent."""
        return replace(self, prompt=None, rendered=None, reason=reason, detail=detail)

    def going_on(self, step: Tail | Rewritten, whole: bytes | None) -> CapturePlan:
        """The plan with what was found. whole: the rendering of all of the prompt, if any."""
        if isinstance(step, Rewritten):
            return self.forked(step.detail, step.reason)
        assert self.prefix is not None  # what it goes on from
        prompt = self.prefix.tokens + step.tokens
        return replace(self, prompt=prompt, rendered=None if whole is None else rendered(whole))

    @property
    def first_experts(self) -> int | None:
        """The first token whose routed experts are captured; earlier tokens already have theirs.
        None: no routed experts are captured.
        """
        if self.record is None or ROUTED_EXPERTS not in self.record.side_asked:
            return None
        continues = self.prompt is not None and self.prefix is not None
        return self.prefix.side_rows.get(ROUTED_EXPERTS, 0) if continues and self.prefix else 0

    def read_prompt(self, ids: Any) -> None:
        """Checks the prompt that the server read, and records it. Raises PromptIgnored,
        AnswerInvalid.
        """
        record = self.record
        if record is None:
            return
        if self.prompt is not None:
            # As a list, which is what came: packing it would cost five times as much. Made of
            # the bytes only now, since a list takes nine times their memory.
            if ids != unpack_ids(self.prompt):
                raise PromptIgnored
            prompt = self.prompt
        elif ids is None:
            return
        else:
            prompt = pack_ids(ids)
        record.known = True
        record.fork = None
        record.prefix_tokens = 0
        record.prompt = prompt
        record.rendered = self.rendered
        prefix = self.prefix
        if prefix is None:
            return
        if prompt.startswith(prefix.tokens) and not prefix.rewritten:
            record.prefix_tokens = count(prefix.tokens)
            record.prompt = prompt[len(prefix.tokens) :]
        else:
            common = common_tokens(prompt, prefix.tokens)
            record.fork = tokens_pb2.Fork(
                reason=self.reason, common_tokens=common, detail=self.detail
            )

    def read_choice(self, answer: Json) -> None:
        """Records the tokens of the choice in an answer or a chunk. Raises AnswerInvalid."""
        record, choices = self.record, answer.get("choices")
        if record is None or not record.known or not isinstance(choices, list) or not choices:
            return
        choice = choices[0]
        if not isinstance(choice, dict):
            return
        if choice.get("token_ids"):
            record.output.append(pack_ids(choice["token_ids"]))
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, Mapping):
            content = logprobs.get("content") or []
            if record.logprobs_asked:
                record.logprobs.append(pack_logprobs(_values(content)))
            if not self.keep_logprobs:
                choice["logprobs"] = None
        if choice.get("weight_versions"):
            record.weights = _spans(choice["weight_versions"])
        finish = choice.get("finish_reason")
        if finish is not None:
            # A stop string leaves no stop token behind.
            record.closed = finish_of(finish) is Finish.DONE and not isinstance(
                choice.get("stop_reason"), str
            )

    def check(self) -> None:
        """Call this when the answer is complete. Raises AnswerInvalid."""
        record = self.record
        if record is None or not record.logprobs:
            return
        tokens, logprobs = sum(map(len, record.output)), sum(map(len, record.logprobs))
        if tokens != logprobs:
            raise AnswerInvalid(
                f"the number of log probabilities in the response is {logprobs // TOKEN_BYTES}, "
                f"but the number of tokens is {tokens // TOKEN_BYTES}"
            )


def take_answer(name: str, plan: CapturePlan, answer: Json) -> None:
    """Moves the tokens of a complete (not streamed) answer into the record.

    Raises PromptIgnored, and MeshError MODEL_ANSWER_INVALID.
    """
    try:
        if plan.record is not None:
            plan.record.begin_again()
        plan.read_prompt(answer.get("prompt_token_ids"))
        plan.read_choice(answer)
        plan.check()
    except AnswerInvalid as error:
        raise answer_invalid(name, str(error)) from None


def take_experts(name: str, plan: CapturePlan, answer: Json) -> None:
    """Reads the routed experts from a complete answer, after its tokens were read.

    Raises MeshError MODEL_ANSWER_INVALID if requested experts are missing or don't fit the tokens.
    """
    record, first = plan.record, plan.first_experts
    choice = answer["choices"][0] if answer.get("choices") else {}
    if record is not None and first is not None and record.output:
        prompt, sampled = record.prompt_tokens, sum(map(len, record.output)) // TOKEN_BYTES
        try:
            rows = npy_experts(answer, choice, prompt, sampled, first)
            record.side_data = picked(name, [rows], record.side_asked, prompt + sampled)
        except AnswerInvalid as error:
            raise answer_invalid(name, str(error)) from None
    choice.pop(ROUTED_EXPERTS, None)
    answer.pop("prompt_routed_experts", None)


class VllmReader(ChatReader):
    """Reads a streamed answer and its tokens."""

    def __init__(
        self,
        name: str,
        fold: ChatFold,
        params: Mapping[str, Any],
        progress: CallProgress,
        secrets: tuple[str, ...],
        plan: CapturePlan,
    ) -> None:
        super().__init__(name, fold, params, progress, secrets)
        self._plan = plan
        self._begun = False
        if plan.record is not None:
            plan.record.begin_again()

    def _add(self, chunk: Json) -> None:
        # Its tokens first: a prompt that was ignored must show no delta.
        if not self._begun:
            self._begun = True
            self._plan.read_prompt(chunk.get("prompt_token_ids"))
        self._plan.read_choice(chunk)
        super()._add(chunk)

    def end(self) -> None:
        super().end()
        try:
            self._plan.check()
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None

    def take_whole(self, answer: Json) -> None:
        take_answer(self._name, self._plan, answer)
        super().take_whole(answer)


def _spans(said: Any) -> list[tokens_pb2.WeightsSpan]:
    """The spans if each has a number as its version; otherwise an empty result."""
    spans: list[tokens_pb2.WeightsSpan] = []
    try:
        for one in said:
            version = version_of(one["version"])
            if version is None:
                return []
            spans.append(tokens_pb2.WeightsSpan(version=version, first_token=one["start"]))
    except (KeyError, TypeError, ValueError):
        raise AnswerInvalid("the response's weight versions are not a list of spans") from None
    return spans


def _values(content: Any) -> list[Any]:
    try:
        return [entry["logprob"] for entry in content]
    except (KeyError, TypeError):
        raise AnswerInvalid("the response's log probabilities are not a list of objects") from None

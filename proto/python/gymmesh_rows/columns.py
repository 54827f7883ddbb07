"""The columns of a row. Generated from proto/gymmesh. Do not edit.

Each message of gymmesh/row/v1 and what it is made of, as gymmesh/json/v1 has them written. Bytes
that hold JSON, and parts of Responses documents, are JSON text (`msgspec.Raw`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gymmesh.model.v1 import retries_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_rows import values
from gymmesh_rows.names import EnumNames

_CallLinkNames = EnumNames(rollout_pb2.CallLink, "CALL_LINK_")
_ConstraintNames = EnumNames(tokens_pb2.Constraint, "CONSTRAINT_")
_ForkReasonNames = EnumNames(tokens_pb2.ForkReason, "FORK_REASON_")
_LogprobDistributionNames = EnumNames(tokens_pb2.LogprobDistribution, "LOGPROB_DISTRIBUTION_")
_SandboxEndCauseNames = EnumNames(rollout_pb2.SandboxEndCause, "SANDBOX_END_CAUSE_")
_StopReasonNames = EnumNames(rollout_pb2.StopReason, "STOP_REASON_")
_ToolOutcomeNames = EnumNames(rollout_pb2.ToolOutcome, "TOOL_OUTCOME_")
_VerificationStatusNames = EnumNames(rollout_pb2.VerificationStatus, "VERIFICATION_STATUS_")


class UsageSumInputTokensDetails(msgspec.Struct, gc=False):
    """The object around `UsageSum.cached_tokens`."""

    cached_tokens: int


class UsageSumOutputTokensDetails(msgspec.Struct, gc=False):
    """The object around `UsageSum.reasoning_tokens`."""

    reasoning_tokens: int


class UsageSum(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The sum of the tokens of several calls.

    Attributes:
        input_tokens: The tokens that the model read (its input).
        cached_tokens: The input tokens that came from the endpoint's prompt cache.
        output_tokens: The tokens that the model wrote.
        reasoning_tokens: The output tokens that were reasoning.
        total_tokens: The tokens that the model read and wrote.
    """

    input_tokens: int
    input_tokens_details: UsageSumInputTokensDetails
    output_tokens: int
    output_tokens_details: UsageSumOutputTokensDetails
    total_tokens: int

    @property
    def cached_tokens(self) -> int:
        """The input tokens that came from the endpoint's prompt cache."""
        return self.input_tokens_details.cached_tokens

    @property
    def reasoning_tokens(self) -> int:
        """The output tokens that were reasoning."""
        return self.output_tokens_details.reasoning_tokens


class RowResponse(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A whole rollout as one response. `id`, `model`, `status`, `error` and `incomplete_details`
    describe the final call: the root agent's last model call. If the root agent made no call, the
    final call is the last of all calls.

    Attributes:
        id: The id of the final answer; the rollout's id if the answer has no id.
        object: Always the text `response`.
        created_at: When the rollout started, in seconds since 1970.
        model: The name of the model that answered last. If the endpoint sent no name: the name of
            the model service.
        status: `failed` if the rollout failed. If the rollout did not fail and `incomplete_details`
            is set: `incomplete`. In all other cases: the status of the final answer, or `completed`
            if the final answer has no status.
        error: The final answer's error, as JSON.
        incomplete_details: Why the response is incomplete, as JSON: the details in the final
            answer. If the final answer has no details and the rollout stopped for the reason
            `max_output_tokens` or `content_filter`: this reason.
        output: The conversation of the final call, without the first items (`first_items` or
            `input`). Each call has four parts: the items before the answer, the answer, the tool
            outputs in the order of the function calls, and the environment's turns.
        usage: The tokens of all model calls of the root agent.
    """

    id: str
    object: str
    created_at: float
    model: str
    status: str
    error: Raw | None
    incomplete_details: Raw | None
    output: list[Raw]
    usage: UsageSum


class RewardComponent(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A part of a reward, such as `format` or `correctness`.

    Attributes:
        name: The component's name, the same for every task of an environment. A component with the
            name of an actor (ModelCallCompleted.actor) is the reward of this actor. Trainers that
            learn from each actor's conversation use this reward. If an actor has no component, the
            trainers use the scalar reward.
        value: The component's value, a finite number.
        weight: The component's weight in the scalar reward, if the scalar reward is a weighted sum
            of components.
    """

    name: str
    value: float
    weight: float | UnsetType = UNSET

    @staticmethod
    def of(message: rollout_pb2.RewardComponent) -> RewardComponent:
        """The columns of a message."""
        made = RewardComponent(
            name=message.name,
            value=values.finite(message.value, "value"),
        )
        if message.HasField("weight"):
            made.weight = values.finite(message.weight, "weight")
        return made


class VerificationStage(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One step that a verifier took.

    Attributes:
        name: The step's name, such as `extract`, `run_tests` or `judge`.
        duration_us: How long the step took, in microseconds.
        note: One line on the step's result, for people; may be empty.
    """

    name: str
    duration_us: int
    note: str

    @staticmethod
    def of(message: rollout_pb2.VerificationStage) -> VerificationStage:
        """The columns of a message."""
        made = VerificationStage(
            name=message.name,
            duration_us=message.duration_us,
            note=message.note,
        )
        return made


class ModelCallUsage(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The tokens of model calls made on behalf of a rollout.

    Attributes:
        model: The name of the model service.
        calls: The number of calls.
        input_tokens: The prompt tokens of all the calls to this model together.
        output_tokens: The answer tokens of all the calls to this model together.
    """

    model: str
    calls: int
    input_tokens: int
    output_tokens: int

    @staticmethod
    def of(message: rollout_pb2.ModelCallUsage) -> ModelCallUsage:
        """The columns of a message."""
        made = ModelCallUsage(
            model=message.model,
            calls=message.calls,
            input_tokens=message.input_tokens,
            output_tokens=message.output_tokens,
        )
        return made


class RewardSpan(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A reward for a part of a rollout, for trainers that reward single turns. The part is a range
    of model calls of one actor. If token positions are known, the part is a range of output tokens
    within these calls.

    Attributes:
        name: What the reward is for; may be empty.
        value: The reward, a finite number.
        actor: The name of the actor that made the calls; empty for the root agent.
        first_call_id: The id of the first model call of the range; empty: the actor's first call.
        last_call_id: The id of the last model call of the range; empty: the actor's last call.
        first_token: The index of the first output token of the range, in the call `first_call_id`,
            from 0.
        end_token: The index of the first output token after the range, in the call `last_call_id`.
    """

    name: str = ""
    value: float
    actor: str = ""
    first_call_id: str = ""
    last_call_id: str = ""
    first_token: int | UnsetType = UNSET
    end_token: int | UnsetType = UNSET

    @staticmethod
    def of(message: rollout_pb2.RewardSpan) -> RewardSpan:
        """The columns of a message."""
        made = RewardSpan(
            value=values.finite(message.value, "value"),
        )
        if message.name:
            made.name = message.name
        if message.actor:
            made.actor = message.actor
        if message.first_call_id:
            made.first_call_id = message.first_call_id
        if message.last_call_id:
            made.last_call_id = message.last_call_id
        if message.HasField("first_token"):
            made.first_token = message.first_token
        if message.HasField("end_token"):
            made.end_token = message.end_token
        return made


class Verification(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The verdict on a rollout.

    Attributes:
        status: Whether there is a verdict: VERIFIED, PENDING (later) or SKIPPED (not judged).
        reward: The scalar reward, a finite number, typically between 0.0 and 1.0. The reward is set
            if the status is VERIFIED, and only then.
        components: The parts of the reward, in the environment's order; may be empty.
        evidence: The reasons for the verdict, as a JSON object (extracted answer, failing tests);
            may be empty. Each key of this object is also a key of the output row.
        verifier: The verifier's name.
        verifier_version: The verifier's version, which changes when the verifier's verdicts can
            change.
        stages: The verifier's steps and how long each step took.
        reason: If the status is PENDING or SKIPPED: why there is no verdict, in one line.
        model_usage: The tokens of the model calls that the verifier made for this verdict (judges).
        awaits_group: True for a PENDING verdict of an environment that judges groups. The agent
            sets this field. Once all repeats of the task have ended, the collector calls
            AgentService.JudgeGroup, which judges all repeats together.
        explanation: The verdict in one line for people, such as `expected 42, got 41`; may be
            empty.
        compat: If the environment returned the verdict of a reference implementation, right or
            wrong: the implementation's name, such as `nemo`. `version` then also has this name, as
            in `2+nemo`. Empty: the environment returned its own verdict.
        spans: Rewards for parts of the rollout; may be empty. These rewards do not change `reward`.
        reverified: If `gym-cli reverify` judged the stored rollout again: when, by which verifier
            and how, as a JSON object. Only rows have this field; verifiers never set this field.
        previous: If `gym-cli reverify` judged the stored rollout again: the earlier verdicts, with
            the oldest verdict first, as a JSON array of verifications. Only rows have this field.
    """

    status: str
    reward: float | None
    components: list[RewardComponent]
    evidence: Raw
    verifier: str
    verifier_version: str = msgspec.field(name="version")
    stages: list[VerificationStage]
    reason: str
    model_usage: list[ModelCallUsage] = []
    awaits_group: bool = False
    explanation: str = ""
    compat: str = ""
    spans: list[RewardSpan] = []
    reverified: Raw | UnsetType = UNSET
    previous: Raw | UnsetType = UNSET

    @staticmethod
    def of(message: rollout_pb2.Verification) -> Verification:
        """The columns of a message."""
        made = Verification(
            status=_VerificationStatusNames[message.status],
            reward=values.finite(message.reward, "reward") if message.HasField("reward") else None,
            components=[RewardComponent.of(one) for one in message.components[:]]
            if message.components
            else [],
            evidence=values.json_text(message.evidence_json, "evidence")
            if message.evidence_json
            else Raw(b"{}"),
            verifier=message.verifier,
            verifier_version=message.verifier_version,
            stages=[VerificationStage.of(one) for one in message.stages[:]]
            if message.stages
            else [],
            reason=message.reason,
        )
        if message.model_usage:
            made.model_usage = [ModelCallUsage.of(one) for one in message.model_usage[:]]
        if message.awaits_group:
            made.awaits_group = message.awaits_group
        if message.explanation:
            made.explanation = message.explanation
        if message.compat:
            made.compat = message.compat
        if message.spans:
            made.spans = [RewardSpan.of(one) for one in message.spans[:]]
        if message.reverified_json:
            made.reverified = values.json_text(message.reverified_json, "reverified")
        if message.previous_json:
            made.previous = values.json_text(message.previous_json, "previous")
        return made


class FinalState(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The state of a session at the end of the rollout. With this state, the rollout can be judged
    again. The state may contain expected answers. So the row has the state, but exports and bundles
    omit it.

    Attributes:
        state: The state as JSON; empty if the state was not kept.
        omitted: If the state was not kept: why (the state is not JSON, or is too large), in one
            line.
    """

    state: Raw | UnsetType = UNSET
    omitted: str = ""

    @staticmethod
    def of(message: rollout_pb2.FinalState) -> FinalState:
        """The columns of a message."""
        made = FinalState()
        if message.state_json:
            made.state = values.json_text(message.state_json, "state")
        if message.omitted:
            made.omitted = message.omitted
        return made


class ToolOutcomeCount(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The number of calls of one tool with one outcome.

    Attributes:
        name: The tool's name.
        outcome: The outcome. UNSPECIFIED if the call was not answered, or if this contract version
            does not know the outcome.
        calls: The number of calls of this tool with this outcome.
    """

    name: str
    outcome: str
    calls: int


class RowTimings(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Times of a rollout. All values except `started_at` are in microseconds.

    Attributes:
        started_at: When the rollout started, in seconds since 1970.
        duration_us: The time from the rollout's start to its end.
        model_us: The sum of the times of all model calls, including the calls of actors. If calls
            were concurrent, the sum can exceed `duration_us`.
        tools_us: The sum of the times of all tool calls. If calls were concurrent, the sum can
            exceed `duration_us`.
        verify_us: The time spent in the verification.
    """

    started_at: float
    duration_us: int
    model_us: int
    tools_us: int
    verify_us: int


class RowMetadata(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Counts and times of a rollout.

    Attributes:
        steps_taken: The number of model calls that the root agent made.
        tools_used: The names of the called tools, in the order of the first call of each tool.
        tool_outcomes: The number of calls for each tool and outcome. The entries are in the order
            in which the first call of each entry was answered.
        verified: Whether the rollout has a reward.
        seed: The seed of the session.
        weights_versions: The versions of the weights with which the model wrote the trainable
            answers, sorted.
        timings: How the rollout's time was spent.
    """

    steps_taken: int
    tools_used: list[str]
    tool_outcomes: list[ToolOutcomeCount]
    verified: bool
    seed: int | UnsetType = UNSET
    weights_versions: list[int] = []
    timings: RowTimings


class Actor(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """An actor other than the root agent that called models. The actor's conversations are the
    calls that have the actor's name in `actor`.

    Attributes:
        name: The actor's name.
        models: The model services that the actor called, sorted.
        model_calls: The number of the actor's calls.
        trainable: Whether a trainer should learn from any of the actor's calls.
        reward: The actor's reward: the value of the verdict's component with the actor's name. Not
            set: the actor's reward is the row's reward.
        usage: The tokens of all model calls of the actor.
    """

    name: str
    models: list[str]
    model_calls: int
    trainable: bool
    reward: float | UnsetType = UNSET
    usage: UsageSum


class Fork(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A Fork states that a prompt does not begin with the tokens of the parent call.

    Attributes:
        reason: Why the prompt differs.
        common_tokens: How many tokens at the start of the prompt agree with the tokens of the
            parent call.
        detail: One line with details, for people.
    """

    reason: str
    common_tokens: int
    detail: str = ""

    @staticmethod
    def of(message: tokens_pb2.Fork) -> Fork:
        """The columns of a message."""
        made = Fork(
            reason=_ForkReasonNames[message.reason],
            common_tokens=message.common_tokens,
        )
        if message.detail:
            made.detail = message.detail
        return made


class WeightsSpan(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A range of output tokens that one version of the weights generated. The range ends where the
    next span begins.

    Attributes:
        version: The version of the weights, which increases with every update.
        first_token: The index of the first output token of the range, from 0. Spans are in order,
            and the first span begins at 0.
        adapter: The name of the adapter (LoRA) that generated the tokens; empty: no adapter.
    """

    version: int
    first_token: int
    adapter: str = ""

    @staticmethod
    def of(message: tokens_pb2.WeightsSpan) -> WeightsSpan:
        """The columns of a message."""
        made = WeightsSpan(
            version=message.version,
            first_token=message.first_token,
        )
        if message.adapter:
            made.adapter = message.adapter
        return made


class ConstrainedSpan(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A range of output tokens that the policy did not sample freely.

    Attributes:
        first_token: The index of the first output token of the range, from 0. Spans are in order
            and do not overlap.
        tokens: The number of tokens in the range.
        constraint: Why the tokens were not sampled freely.
    """

    first_token: int
    tokens: int
    constraint: str = "UNSPECIFIED"

    @staticmethod
    def of(message: tokens_pb2.ConstrainedSpan) -> ConstrainedSpan:
        """The columns of a message."""
        made = ConstrainedSpan(
            first_token=message.first_token,
            tokens=message.tokens,
        )
        if message.constraint:
            made.constraint = _ConstraintNames[message.constraint]
        return made


class SideData(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A tensor that belongs to the tokens of a call, such as routed experts, a teacher's log
    probabilities or values. The tensor has one row for each token of a range. Tokens are counted
    over the call's whole prompt and output. A call carries only rows that earlier calls of the
    conversation do not have. The rows of a call that is a fork begin with the first token of the
    prompt. If two calls of a conversation have a row for the same token, a reader must use the row
    of the earlier call, because the model sampled with it. The last output token usually has no
    row, because no forward pass read that token. The next call then has that row.

    Attributes:
        name: The name of the side data, such as `routed_experts`; unique in a capture.
        dtype: The type of each number, by its name in numpy: `int8`, `uint8`, `int16`, `uint16`,
            `int32`, `float16`, `bfloat16` or `float32`. The numbers are little-endian.
        shape: The shape of the row of one token. Empty: the row is one number. No dimension is
            zero.
        first_token: The index of the first token that has a row, counted over the call's whole
            prompt and output, from 0.
        tokens: The number of tokens that have a row, at least 1. No token after the call's last
            output token has a row.
        data: The numbers, row after row, if they have at most 4,096 bytes. If they have more bytes,
            `data` is empty and `location` is set.
        location: Where the model service stored the numbers, as a `file:` URL; empty if `data` has
            the numbers. The URL ends with `/XY/DIGEST`: the digest in lower-case hexadecimal
            digits, in a folder named by the digest's first two digits. The file was complete before
            the answer was sent. A reader that cannot access the folder calls ReadSideData of the
            model service. The service may delete the oldest files (configuration `side_data`).
        digest: The SHA-256 of the numbers. A reader must check this digest before using the
            numbers.
    """

    name: str = ""
    dtype: str = ""
    shape: list[int] = []
    first_token: int = 0
    tokens: int = 0
    data: str = ""
    location: str = ""
    digest: str = ""

    @staticmethod
    def of(message: tokens_pb2.SideData) -> SideData:
        """The columns of a message."""
        made = SideData()
        if message.name:
            made.name = message.name
        if message.dtype:
            made.dtype = message.dtype
        if message.shape:
            made.shape = message.shape[:]
        if message.first_token:
            made.first_token = message.first_token
        if message.tokens:
            made.tokens = message.tokens
        if message.data:
            made.data = values.base64_text(message.data)
        if message.location:
            made.location = message.location
        if message.digest:
            made.digest = bytes.hex(message.digest)
        return made


class TokenCapture(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The tokens of one model call. The prompt begins with the parent call's prompt and output
    tokens, unless `fork` is set.

    Attributes:
        prompt_token_ids: The prompt's token ids, each a little-endian int32. If
            `prompt_prefix_tokens` is not zero, the field has only the ids after this prefix.
        output_token_ids: The sampled token ids, each a little-endian int32.
        logprobs: The log probability of each token in `output_token_ids`, as a little-endian
            float32; empty if log probabilities were not captured.
        weights: The versions of the weights that generated the output; empty if unknown.
        fork: Set if the prompt does not begin with the parent call's tokens: where and why.
        prompt_prefix_tokens: How many tokens at the start of the prompt are the parent call's
            prompt and output. `prompt_token_ids` does not repeat these tokens. Zero:
            `prompt_token_ids` has the whole prompt.
        tokenizer_digest: The SHA-256 of the tokenizer and chat template; may be empty. A trainer
            can compare this digest with the digest of the trainer's own tokenizer and chat
            template.
        logprob_distribution: The probability distribution that `logprobs` refer to.
        constrained: Output tokens that were not sampled freely. A trainer must not learn from
            tokens that the server inserted (FORCED).
        side_data: Tensors that belong to the tokens, if the caller requested them and the backend
            has them.
    """

    prompt_token_ids: list[int]
    output_token_ids: list[int]
    logprobs: list[float | None] = []
    weights: list[WeightsSpan] = []
    fork: Fork | UnsetType = UNSET
    prompt_prefix_tokens: int = 0
    tokenizer_digest: str = ""
    logprob_distribution: str = "UNSPECIFIED"
    constrained: list[ConstrainedSpan] = []
    side_data: list[SideData] = []

    @staticmethod
    def of(message: tokens_pb2.TokenCapture) -> TokenCapture:
        """The columns of a message."""
        made = TokenCapture(
            prompt_token_ids=values.ids(message.prompt_token_ids),
            output_token_ids=values.ids(message.output_token_ids),
        )
        if message.logprobs:
            made.logprobs = values.logprobs(message.logprobs)
        if message.weights:
            made.weights = [WeightsSpan.of(one) for one in message.weights[:]]
        if message.HasField("fork"):
            made.fork = Fork.of(message.fork)
        if message.prompt_prefix_tokens:
            made.prompt_prefix_tokens = message.prompt_prefix_tokens
        if message.tokenizer_digest:
            made.tokenizer_digest = bytes.hex(message.tokenizer_digest)
        if message.logprob_distribution:
            made.logprob_distribution = _LogprobDistributionNames[message.logprob_distribution]
        if message.constrained:
            made.constrained = [ConstrainedSpan.of(one) for one in message.constrained[:]]
        if message.side_data:
            made.side_data = [SideData.of(one) for one in message.side_data[:]]
        return made


class CallTimings(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """How the time of one call was spent, in microseconds. Zero means not measured.

    Attributes:
        queue_us: The time that the call waited before it was sent, because a limit of concurrent
            calls was reached.
        total_us: The time from sending the call to the complete answer, as measured by the caller.
        endpoint_us: Only for a model call: the time of the last request to the endpoint, which the
            endpoint answered, as measured by the model service.
        retry_us: Only for a model call: the time of earlier requests, which failed, and of the
            waits between all requests.
    """

    queue_us: int = 0
    total_us: int = 0
    endpoint_us: int = 0
    retry_us: int = 0

    @staticmethod
    def of(message: rollout_pb2.CallTimings) -> CallTimings:
        """The columns of a message."""
        made = CallTimings()
        if message.queue_us:
            made.queue_us = message.queue_us
        if message.total_us:
            made.total_us = message.total_us
        if message.endpoint_us:
            made.endpoint_us = message.endpoint_us
        if message.retry_us:
            made.retry_us = message.retry_us
        return made


class CallRetries(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """How often the model service sent a call to the endpoint again, for one reason.

    Attributes:
        reason: Why the previous request failed: an ErrorReason without its prefix, such as
            `MODEL_RATE_LIMITED`.
        count: The number of retries for this reason, at least 1.
    """

    reason: str = ""
    count: int = 0

    @staticmethod
    def of(message: retries_pb2.CallRetries) -> CallRetries:
        """The columns of a message."""
        made = CallRetries()
        if message.reason:
            made.reason = message.reason
        if message.count:
            made.count = message.count
        return made


class ScoredChoice(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A text that a model scored.

    Attributes:
        text: The scored text.
        logprob: The sum of the log probabilities of the text's tokens.
        tokens: The number of tokens of the text.
        greedy: Whether the model would write this text at temperature 0.
    """

    text: str
    logprob: float
    tokens: int
    greedy: bool = False

    @staticmethod
    def of(message: rollout_pb2.ScoredChoice) -> ScoredChoice:
        """The columns of a message."""
        made = ScoredChoice(
            text=message.text,
            logprob=values.finite(message.logprob, "logprob"),
            tokens=message.tokens,
        )
        if message.greedy:
            made.greedy = message.greedy
        return made


class ModelCall(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A model call. The calls form a tree. In each call, the model read the conversation of the
    parent call, then the new items before the answer, and then wrote the answer.

    Attributes:
        call_id: The call's id, unique within the rollout.
        parent_call_id: The id of the parent call, which this call continues; empty for a first
            call.
        detached: Whether the call starts a new conversation instead of continuing the parent call's
            conversation.
        actor: The actor that made the call; empty for the root agent.
        model: The name of the model service.
        trainable: Whether a trainer should learn from the call's answer.
        link: If a gateway captured the call from a program: how the call relates to its parent.
        side_call: If the call is outside the conversation, such as a call that writes a title: the
            call's purpose.
        fork: If the call's prompt differs from the parent call's tokens or conversation: where and
            why the prompt begins to differ.
        id: The answer's id.
        status: The answer's status.
        usage: The tokens of the call.
        incomplete_details: Why the answer is incomplete; absent if the answer is complete.
        error: The answer's error; absent if the answer has no error.
        first_item: The index in `response.output`, from 0, where the call's part of the
            conversation starts. The part consists of the items before the answer, the answer, the
            outputs of the answer's tool calls, and the environment's turns. Not set: the final call
            does not descend from this call, and the part is in `items`.
        item_count: The number of items in the call's part of the conversation.
        context_count: The number of items before the answer.
        answer_count: The number of items of the answer.
        items: The items of the call's part of the conversation, if `response.output` does not have
            them.
        tokens: The tokens that the call added to the parent call's tokens.
        timings: How the call's time was spent.
        retries: How often the model service retried the call at the endpoint, by reason.
        replaced_params: For a call captured from a program: the parameters of the program's request
            that the run replaced.
        left_out: For a call captured from a program: the parts of the program's request that the
            gateway did not send to the model service.
        choices: If the agent chose the answer among scored texts instead of sampling the answer:
            the texts that the model scored. One of these texts is the answer.
    """

    call_id: str
    parent_call_id: str = ""
    detached: bool = False
    actor: str = ""
    model: str
    trainable: bool
    link: str = "UNSPECIFIED"
    side_call: str = ""
    fork: Fork | UnsetType = UNSET
    id: str | UnsetType = msgspec.field(default=UNSET, name="response_id")
    status: str | UnsetType = UNSET
    usage: Raw | UnsetType = UNSET
    incomplete_details: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    first_item: int | UnsetType = UNSET
    item_count: int
    context_count: int = 0
    answer_count: int
    items: list[Raw] = []
    tokens: TokenCapture | UnsetType = UNSET
    timings: CallTimings | UnsetType = UNSET
    retries: list[CallRetries] = []
    replaced_params: Raw | UnsetType = UNSET
    left_out: list[str] = []
    choices: list[ScoredChoice] = []

    @staticmethod
    def of(
        call: rollout_pb2.ModelCallCompleted,
        answer: responses_pb2.Response,
        *,
        first_item: int | UnsetType,
        item_count: int,
        context_count: int,
        answer_count: int,
        items: list[Raw],
    ) -> ModelCall:
        """The columns of what it is made of, and those that are computed."""
        made = ModelCall(
            call_id=call.call_id,
            model=call.model or answer.model,
            trainable=call.trainable,
            item_count=item_count,
            answer_count=answer_count,
        )
        if call.parent_call_id:
            made.parent_call_id = call.parent_call_id
        if call.detached:
            made.detached = call.detached
        if call.actor:
            made.actor = call.actor
        if call.link:
            made.link = _CallLinkNames[call.link]
        if call.side_call:
            made.side_call = call.side_call
        if call.HasField("fork"):
            made.fork = Fork.of(call.fork)
        if answer.HasField("id"):
            made.id = answer.id
        if answer.HasField("status"):
            made.status = answer.status
        if answer.HasField("usage"):
            made.usage = values.usage(answer.usage)
        if answer.HasField("incomplete_details"):
            made.incomplete_details = values.incomplete_details(answer.incomplete_details)
        if answer.HasField("error"):
            made.error = values.response_error(answer.error)
        if first_item is not UNSET:
            made.first_item = first_item
        if context_count:
            made.context_count = context_count
        if items:
            made.items = items
        if call.HasField("tokens"):
            made.tokens = TokenCapture.of(call.tokens)
        if call.HasField("timings"):
            made.timings = CallTimings.of(call.timings)
        if call.retries:
            made.retries = [CallRetries.of(one) for one in call.retries[:]]
        if call.replaced_params_json:
            made.replaced_params = values.json_text(call.replaced_params_json, "replaced_params")
        if call.left_out:
            made.left_out = call.left_out[:]
        if call.choices:
            made.choices = [ScoredChoice.of(one) for one in call.choices[:]]
        return made


class ToolCall(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A tool call. The output of the tool call is an item of the conversation.

    Attributes:
        call_id: The id of the function call.
        name: The tool's name.
        model_call_id: The id of the model call with the answer that requested the tool call.
        actor: The actor that made the call; empty for the root agent.
        outcome: How the call was answered; UNSPECIFIED if the call was not answered.
        timings: How long the call took.
        reward: The reward of the call, if the environment returned one.
    """

    call_id: str
    name: str
    model_call_id: str = ""
    actor: str = ""
    outcome: str
    timings: CallTimings | UnsetType = UNSET
    reward: float | UnsetType = UNSET

    @staticmethod
    def of(
        done: rollout_pb2.ToolCallCompleted,
    ) -> ToolCall:
        """The columns of what it is made of, and those that are computed."""
        made = ToolCall(
            call_id=done.call_id,
            name=done.name,
            outcome=_ToolOutcomeNames[done.outcome],
        )
        if done.model_call_id:
            made.model_call_id = done.model_call_id
        if done.actor:
            made.actor = done.actor
        if done.HasField("timings"):
            made.timings = CallTimings.of(done.timings)
        if done.HasField("reward"):
            made.reward = values.finite(done.reward, "reward")
        return made


class Turn(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A turn is a reply of the environment to the model. The items of the turn are in the
    conversation.

    Attributes:
        turn: The turn's number, from 1.
        model_call_id: The id of the model call that the turn answers.
        reward: The turn's reward, if the environment returned one.
        done: Whether the episode was over after this turn.
    """

    turn: int
    model_call_id: str = ""
    reward: float | UnsetType = UNSET
    done: bool = False

    @staticmethod
    def of(
        taken: rollout_pb2.TurnCompleted,
    ) -> Turn:
        """The columns of what it is made of, and those that are computed."""
        made = Turn(
            turn=taken.turn,
        )
        if taken.model_call_id:
            made.model_call_id = taken.model_call_id
        if taken.HasField("reward"):
            made.reward = values.finite(taken.reward, "reward")
        if taken.done:
            made.done = taken.done
        return made


class RowStatus(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A google.rpc.Status with its ErrorInfo.

    Attributes:
        code: The gRPC status code, a number.
        message: The message, one sentence for people.
        reason: The reason of the ErrorInfo, such as `MODEL_TIMEOUT`.
        metadata: The metadata of the ErrorInfo.
    """

    code: int
    message: str
    reason: str
    metadata: dict[str, str]


class RowFailure(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Why a rollout failed.

    Attributes:
        boundary: The boundary: the part of the system that failed, such as MODEL.
        status: What happened: status code, message, reason and metadata.
        retry_safe: Whether a new attempt is harmless and may succeed.
        component: The name of the service, tool, verifier or budget that failed.
        call_id: The id of the model call or function call that failed; empty if no call failed.
        reverified: If `gym-cli reverify` could not judge the stored rollout: the time of the
            command and the verifier, in the form of Verification's `reverified`.
        previous: If `gym-cli reverify` could not judge the stored rollout: the previous verdicts,
            in the form of Verification's `previous`.
    """

    boundary: str
    status: RowStatus
    retry_safe: bool
    component: str
    call_id: str
    reverified: Raw | UnsetType = UNSET
    previous: Raw | UnsetType = UNSET


class Annotation(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A value that a custom agent keeps with the rollout.

    Attributes:
        key: The annotation's name, which begins with the agent's name so that keys of different
            agents differ.
        value: The annotation's value, any JSON value.
        model_call_id: The id of the model call to which the annotation belongs; empty: no model
            call.
    """

    key: str
    value: Raw
    model_call_id: str = ""

    @staticmethod
    def of(message: rollout_pb2.Annotation) -> Annotation:
        """The columns of a message."""
        made = Annotation(
            key=message.key,
            value=values.json_text(message.value_json, "value")
            if message.value_json
            else Raw(b"{}"),
        )
        if message.model_call_id:
            made.model_call_id = message.model_call_id
        return made


class Media(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """An image or another medium, which is sent only once in a rollout. In items, the URL is
    replaced by `gymmesh-media:` and the medium's digest. To restore an item, replace the reference
    by the data URL `data:<media_type>;base64,<data>`.

    Attributes:
        digest: The digest of `data`: `sha256:` and 64 hexadecimal digits.
        media_type: The media type, such as `image/png`.
        data: The medium's bytes.
    """

    digest: str = ""
    media_type: str = ""
    data: str = ""

    @staticmethod
    def of(message: rollout_pb2.Media) -> Media:
        """The columns of a message."""
        made = Media()
        if message.digest:
            made.digest = message.digest
        if message.media_type:
            made.media_type = message.media_type
        if message.data:
            made.data = values.base64_text(message.data)
        return made


class SandboxRef(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The id of a sandbox, and the image from which the sandbox was made. A SandboxRef is safe to
    store, because a SandboxRef gives no access to the sandbox.

    Attributes:
        sandbox_id: The sandbox's id, unique at its instance.
        service: The name of the sandbox service.
        instance_id: The id of the service instance that runs the sandbox. Send every call for the
            sandbox to this instance.
        image: The name of the image, folder or snapshot from which the sandbox's file system was
            made.
        image_digest: The digest of the image: `sha256:` and 64 hexadecimal digits. Empty: unknown.
    """

    sandbox_id: str = ""
    service: str = ""
    instance_id: str = ""
    image: str = ""
    image_digest: str = ""

    @staticmethod
    def of(message: grant_pb2.SandboxRef) -> SandboxRef:
        """The columns of a message."""
        made = SandboxRef()
        if message.sandbox_id:
            made.sandbox_id = message.sandbox_id
        if message.service:
            made.service = message.service
        if message.instance_id:
            made.instance_id = message.instance_id
        if message.image:
            made.image = message.image
        if message.image_digest:
            made.image_digest = message.image_digest
        return made


class SandboxEnd(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """How a sandbox ended.

    Attributes:
        cause: Why the sandbox ended.
        detail: One line with details, for people; may be empty.
    """

    cause: str = "UNSPECIFIED"
    detail: str = ""

    @staticmethod
    def of(message: rollout_pb2.SandboxEnd) -> SandboxEnd:
        """The columns of a message."""
        made = SandboxEnd()
        if message.cause:
            made.cause = _SandboxEndCauseNames[message.cause]
        if message.detail:
            made.detail = message.detail
        return made


class SandboxOpened(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A sandbox that was opened for the rollout.

    Attributes:
        sandbox: The sandbox's id, service and image.
        role: What the sandbox is for, such as `workspace`.
        end: How the sandbox ended. Absent: the sandbox was still running when the rollout ended,
            and ends with the session. Only rows, and rollouts built from their events (folded
            rollouts), have this field. The value is copied from the event SandboxEnded.
    """

    sandbox: SandboxRef | UnsetType = UNSET
    role: str = ""
    end: SandboxEnd | UnsetType = UNSET

    @staticmethod
    def of(message: rollout_pb2.SandboxOpened) -> SandboxOpened:
        """The columns of a message."""
        made = SandboxOpened()
        if message.HasField("sandbox"):
            made.sandbox = SandboxRef.of(message.sandbox)
        if message.role:
            made.role = message.role
        if message.HasField("end"):
            made.end = SandboxEnd.of(message.end)
        return made


class ProgramEnded(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """How the program that ran as the agent ended.

    Attributes:
        exit_code: The program's exit status; absent if a signal ended the program.
        signal: The number of the signal that ended the program; zero: no signal.
        detail: One line on how the program ended, for people.
        output_tail: The last part of the program's output. This part may begin in the middle of a
            line or character.
    """

    exit_code: int | UnsetType = UNSET
    signal: int = 0
    detail: str = ""
    output_tail: str = ""

    @staticmethod
    def of(message: rollout_pb2.ProgramEnded) -> ProgramEnded:
        """The columns of a message."""
        made = ProgramEnded()
        if message.HasField("exit_code"):
            made.exit_code = message.exit_code
        if message.signal:
            made.signal = message.signal
        if message.detail:
            made.detail = message.detail
        if message.output_tail:
            made.output_tail = values.cut_text(message.output_tail)
        return made


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The record of one rollout. A completed rollout has `verification` and `stop_reason`. A failed
    rollout has `failure` and the calls, items and counts from before the failure.

    Attributes:
        responses_create_params: The Responses parameters with which the agent called the model: the
            task's parameters, with the agent's defaults and the session's tools. `input` is always
            the task's input. Images in `media` are replaced by their digests. If the rollout never
            started: the task's parameters. If a program ran as the agent, this key and `response`
            have the parameters that an agent without a program would send. The program's own
            request is in an annotation `AGENT.gateway_request` of its model call. If a call has no
            such annotation, its request is in the annotation of the nearest earlier call of the
            same actor.
        first_items: The first items of the conversation, set only if the agent or the environment
            added items to the task's input. The model read `first_items`, and then
            `response.output`. If `first_items` is not set, the model read `input`, and then
            `response.output`.
        response: The whole rollout as one response.
        reward: The verdict's reward. A rollout without a reward has null, never 0.
        task_id: The task's id.
        rollout_id: The rollout's id. All attempts of a rollout have the same id.
        run_id: The run's id.
        repeat_index: The number of the repeat of the task, from 0.
        attempt: The number of the attempt, from 1.
        environment: The name of the environment that ran the rollout. If the rollout never started:
            the task's environment.
        agent: The name of the agent that ran the rollout. If the rollout never started: the task's
            agent.
        seed: The task's seed.
        tags: The task's labels.
        verification: The verdict. If the agent of a completed rollout sent no verdict, the status
            is SKIPPED and the reason `the agent sent no verdict`. A failed rollout has no verdict.
        final_state: The session's state at the end of the rollout. The state may contain expected
            answers, so exports and bundles omit it.
        stop_reason: Why a completed rollout ended.
        stop_detail: One line that explains the stop reason; may be empty.
        metadata: Counts and times of the rollout.
        model_usage: The tokens of the environment's own model calls (for turns and the verdict),
            including failed calls. There is one entry for each model, in the order in which the
            models were first called.
        actors: The actors other than the root agent that called models, ordered by name.
        calls: All model calls, in the order in which they completed.
        tool_calls: The tool calls, ordered by the model calls that requested them, and then by
            their position in the model's answer.
        turns: The environment's turns (replies to the model), in order.
        failure: The cause of a failed rollout.
        annotations: Annotations of custom agents.
        media: The media that items refer to.
        sandboxes: The sandboxes that were opened for the rollout.
        program: If a program ran as the agent: how the program ended.
        task_extras: An object with the keys of the task row whose names are also keys of Row. If
            the task's `metadata` is an object, also the keys of `metadata` that have the same name
            as a key of RowMetadata.
        program_name: If a program ran as the agent: the program's name.
        program_version: If a program ran as the agent: the version that the program reports; empty
            if unknown.
    """

    responses_create_params: Raw
    first_items: list[Raw] = []
    response: RowResponse
    reward: float | None
    task_id: str
    rollout_id: str
    run_id: str
    repeat_index: int
    attempt: int
    environment: str
    agent: str
    seed: int | UnsetType = UNSET
    tags: dict[str, str] = {}
    verification: Verification | UnsetType = UNSET
    final_state: FinalState | UnsetType = UNSET
    stop_reason: str = "UNSPECIFIED"
    stop_detail: str = ""
    metadata: RowMetadata
    model_usage: list[ModelCallUsage] = []
    actors: list[Actor] = []
    calls: list[ModelCall] = []
    tool_calls: list[ToolCall] = []
    turns: list[Turn] = []
    failure: RowFailure | UnsetType = UNSET
    annotations: list[Annotation] = []
    media: list[Media] = []
    sandboxes: list[SandboxOpened] = []
    program: ProgramEnded | UnsetType = UNSET
    task_extras: Raw | UnsetType = UNSET
    program_name: str = ""
    program_version: str = ""


class RolloutFields(Protocol):
    """The fields of a Rollout that a row copies; None: not set."""

    @property
    def task_id(self) -> str: ...
    @property
    def rollout_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def repeat_index(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def annotations(self) -> list[rollout_pb2.Annotation]: ...
    @property
    def media(self) -> list[rollout_pb2.Media]: ...
    @property
    def sandboxes(self) -> list[rollout_pb2.SandboxOpened]: ...
    @property
    def program(self) -> rollout_pb2.ProgramEnded | None: ...


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A Row in which lists and the objects with an overlay may be JSON text."""

    responses_create_params: Raw
    first_items: Any = []
    response: Any
    reward: float | None
    task_id: str
    rollout_id: str
    run_id: str
    repeat_index: int
    attempt: int
    environment: str
    agent: str
    seed: int | UnsetType = UNSET
    tags: dict[str, str] = {}
    verification: Any = UNSET
    final_state: Any = UNSET
    stop_reason: str = "UNSPECIFIED"
    stop_detail: str = ""
    metadata: Any
    model_usage: Any = []
    actors: Any = []
    calls: Any = []
    tool_calls: Any = []
    turns: Any = []
    failure: Any = UNSET
    annotations: Any = []
    media: Any = []
    sandboxes: Any = []
    program: Any = UNSET
    task_extras: Raw | UnsetType = UNSET
    program_name: str = ""
    program_version: str = ""


def row_line(
    verified: rollout_pb2.Verified | None,
    completed: rollout_pb2.Completed | None,
    rollout: RolloutFields,
    task: rollout_pb2.Task,
    *,
    responses_create_params: Raw,
    first_items: Iterable[Raw],
    response: Raw,
    reward: float | None,
    environment: str,
    agent: str,
    metadata: Raw,
    model_usage: Iterable[ModelCallUsage],
    actors: Iterable[Actor],
    calls: Iterable[ModelCall],
    tool_calls: Iterable[ToolCall],
    turns: Iterable[Turn],
    failure: RowFailure | UnsetType = UNSET,
    task_extras: Raw | UnsetType = UNSET,
    program_name: str = "",
    program_version: str = "",
    overlay: bytes = b"",
) -> bytes:
    """A row as one line of JSON, without the newline.

    Made of its sources and of the columns that are computed. `response` and
    `metadata` are JSON text with what stands in their overlays; `overlay` is an
    object. Of a long list that an iterator makes, few elements exist at a time.
    Raises ValueError for what JSON does not have.
    """
    made = _Line(
        responses_create_params=responses_create_params,
        response=response,
        reward=reward,
        task_id=rollout.task_id or task.task_id,
        rollout_id=rollout.rollout_id,
        run_id=rollout.run_id,
        repeat_index=rollout.repeat_index,
        attempt=rollout.attempt,
        environment=environment,
        agent=agent,
        metadata=metadata,
    )
    if first_items:
        made.first_items = values.listed(first_items)
    if task.HasField("seed"):
        made.seed = task.seed
    if task.tags:
        made.tags = dict(sorted(task.tags.items()))
    if verified is not None and verified.HasField("verification"):
        made.verification = Verification.of(verified.verification)
    if verified is not None and verified.HasField("final_state"):
        made.final_state = FinalState.of(verified.final_state)
    if completed is not None and completed.stop_reason:
        made.stop_reason = _StopReasonNames[completed.stop_reason]
    if completed is not None and completed.stop_detail:
        made.stop_detail = completed.stop_detail
    if model_usage:
        made.model_usage = values.listed(model_usage)
    if actors:
        made.actors = values.listed(actors)
    if calls:
        made.calls = values.listed(calls)
    if tool_calls:
        made.tool_calls = values.listed(tool_calls)
    if turns:
        made.turns = values.listed(turns)
    if failure is not UNSET:
        made.failure = failure
    if rollout.annotations:
        made.annotations = values.listed(Annotation.of(one) for one in rollout.annotations[:])
    if rollout.media:
        made.media = values.listed(Media.of(one) for one in rollout.media[:])
    if rollout.sandboxes:
        made.sandboxes = values.listed(SandboxOpened.of(one) for one in rollout.sandboxes[:])
    if rollout.program is not None:
        made.program = ProgramEnded.of(rollout.program)
    if task_extras is not UNSET:
        made.task_extras = task_extras
    if program_name:
        made.program_name = program_name
    if program_version:
        made.program_version = program_version
    return values.with_overlay(values.encode(made), overlay)

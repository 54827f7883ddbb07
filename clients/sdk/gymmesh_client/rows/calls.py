"""What a row holds of the model calls of a rollout, and of the conversation they make. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, Raw

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import (
    CallParts,
    RolloutReading,
    as_int64,
    path_to,
    shared_ids,
)
from gymmesh_client.rows.response import usage_sum
from gymmesh_responses import (
    LOGPROB_ROUNDING,
    TOKEN_BYTES,
    CodecError,
    greatest_logprob,
    item_to_json,
)
from gymmesh_rows import Actor, ModelCall, UsageSum


class RowCalls:
    """The calls of a rollout, each item written once. All raise ValueError."""

    def __init__(self, reading: RolloutReading) -> None:
        self._reading = reading
        parts = reading.parts
        self._parts = CallParts(parts.tools, parts.turns, shared_ids(parts.calls, reading.calls))
        #: The place in the output of each call on the way to the final one, and the counts of its
        #: part; by the calls' identity, since a custom agent may give two calls one id.
        self._places: dict[int, tuple[int, int, int, int]] = {}

    def output(self) -> Iterator[Raw]:
        """The conversation of the final call, after the first items. `calls` has the places in it
        once it is read to its end.
        """
        if self._reading.last is None:
            return
        try:
            path, _ = path_to(self._reading.calls, self._reading.last_id)
        except ValueError:
            if self._reading.parts.completed is not None:
                raise
            return  # a rollout may fail for that, and its row has the calls all the same
        place = 0
        for call_id, answered in path:
            part = self._parts.of(call_id, answered)
            counts = (len(part.items), part.context_count, part.answer_count)
            self._places[id(answered[0])] = (place, *counts)
            for item in part.items:
                try:
                    written = Raw(item_to_json(item))
                except CodecError as error:
                    raise error.within(place).within("output") from None
                place += 1
                yield written

    def calls(self) -> Iterator[ModelCall]:
        """All calls, in the order in which they completed; to be read after the output."""
        for call in self._reading.parts.calls:
            _check_tokens(call)
            response = call.response
            known = self._places.get(id(call))
            if known is not None:
                first_item, item_count, context_count, answer_count = known
                yield ModelCall.of(
                    call,
                    response,
                    first_item=first_item,
                    item_count=item_count,
                    context_count=context_count,
                    answer_count=answer_count,
                    items=[],
                )
                continue
            part = self._parts.of(call.call_id, (call, response))
            yield ModelCall.of(
                call,
                response,
                first_item=UNSET,
                item_count=len(part.items),
                context_count=part.context_count,
                answer_count=part.answer_count,
                items=[Raw(item_to_json(item)) for item in part.items],
            )

    def release(self) -> None:
        """Let what was made go, one at a time; see RolloutParts.release."""
        self._parts.release()
        while self._places:
            self._places.popitem()


def _check_tokens(call: pb.ModelCallCompleted) -> None:
    """Raise ValueError for log probabilities that no reader of rows takes: of another number than
    tokens, or positive. Each column alone may hold them.
    """
    tokens = call.tokens
    if not tokens.logprobs:
        return
    sampled, known = len(tokens.output_token_ids), len(tokens.logprobs)
    if sampled != known:
        raise ValueError(
            f"call {call.call_id!r} has {sampled} bytes of token ids, but {known} bytes of log "
            "probabilities"
        )
    if known % TOKEN_BYTES:
        return  # the token ids are refused where they are written
    if (greatest := greatest_logprob(tokens.logprobs)) > LOGPROB_ROUNDING:
        raise ValueError(f"call {call.call_id!r}: the log probability {greatest:g} is positive")


def actors_of(reading: RolloutReading, verified: pb.Verified | None) -> list[Actor]:
    """Those beside the root agent that called models, in the order of their names. verified: the
    verdict; None for a failed rollout, whose actors have no reward either.
    """
    if not reading.actors:
        return []
    components = () if verified is None else verified.verification.components
    rewards = {one.name: one.value for one in components}
    return [
        Actor(
            name=name,
            models=sorted({call.model for call in calls}),
            model_calls=len(calls),
            trainable=any(call.trainable for call in calls),
            reward=rewards.get(name, UNSET),
            usage=_usage(calls),
        )
        for name, calls in sorted(reading.actors.items())
    ]


def all_tokens(reading: RolloutReading) -> tuple[int, int]:
    """Prompt and answer tokens of the root agent's calls and of those of all other actors."""
    others = [_usage(calls) for calls in reading.actors.values()]
    return (
        reading.input_tokens + sum(one.input_tokens for one in others),
        reading.output_tokens + sum(one.output_tokens for one in others),
    )


def _usage(calls: Sequence[pb.ModelCallCompleted]) -> UsageSum:
    spent = [call.response.usage for call in calls]
    return usage_sum(
        as_int64(sum(one.input_tokens for one in spent)),
        as_int64(sum(one.cached_tokens for one in spent)),
        as_int64(sum(one.output_tokens for one in spent)),
        as_int64(sum(one.reasoning_tokens for one in spent)),
    )

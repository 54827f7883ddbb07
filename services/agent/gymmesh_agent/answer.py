"""What the agent reads from a model's answer, and the little that it repairs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.loop import function_calls
from gymmesh_responses import overlay_without, text_of
from gymmesh_runtime.errors import MeshError

_NO_ANSWER = frozenset(("failed", "cancelled", "in_progress", "queued"))
_TOKEN_BYTES = 4  # token ids are little-endian int32
# HasField of the class: a message looks through the names of its fields to find its own.
_response_has = responses_pb2.Response.HasField
_usage_has = responses_pb2.Usage.HasField


# Read once for all who need a part of it. A Struct takes half as long to make as a dataclass.
class ModelCall(msgspec.Struct, eq=False):
    """A model call that was answered.

    Attributes:
        call_id: its id, unique within the attempt.
        actor: who called; empty for the root agent.
        response: the answer, with a call_id for every function call.
        status: the answer's.
        mended: whether that is not what was received: it got call_ids.
        output: the answer's items.
        function_calls: the answer's function calls, in order.
        input_tokens: how many tokens the prompt has; 0 when the service does not say.
        output_tokens: how many the answer has; 0 when the service does not say.
    """

    call_id: str
    actor: str
    response: responses_pb2.Response
    status: str
    mended: bool
    output: Sequence[responses_pb2.Item]
    function_calls: Sequence[responses_pb2.FunctionCall]
    input_tokens: int
    output_tokens: int

    @property
    def text(self) -> str:
        """The text of the answer's messages, joined with nothing between."""
        return "".join(text_of(item) for item in self.output)


def read_answer(
    reply: model_pb2.CreateResponseResponse, call_id: str, actor: str = ""
) -> ModelCall:
    """What the agent needs of the answer to the model call `call_id`.

    Raises:
        MeshError: MODEL_ANSWER_INVALID, for a response that is no answer, with the endpoint's own
            code where there is one; model services turn most of these into errors themselves.
    """
    response = reply.response
    status = response.status
    if status in _NO_ANSWER or _response_has(response, "error"):
        raise _no_answer(response)
    output = response.output[:]  # a slice takes half as long as an iteration
    calls = function_calls(output)
    mended = bool(calls) and not _told_apart(calls)
    if mended:
        response = with_call_ids(response, call_id)
        output = response.output[:]
        calls = function_calls(output)
    usage = response.usage
    read, wrote = usage.input_tokens, usage.output_tokens
    if read <= 0 or wrote <= 0:
        read, wrote = token_counts(reply)
    return ModelCall(call_id, actor, response, status, mended, output, calls, read, wrote)


def _no_answer(response: responses_pb2.Response) -> MeshError:
    code = response.error.code or response.status
    return MeshError(
        errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID,
        f"the model service returned a response that is no answer ({code}): "
        f"{response.error.message or 'no message'}",
        metadata={"cause": code},
    )


def with_call_ids(response: responses_pb2.Response, call_id: str) -> responses_pb2.Response:
    """The response, with a call_id for every function call, unique within it.

    An output is tied to its call by the call_id alone. A call that has none, or one that an
    earlier call of the same answer has, gets `<call_id of the model call>-f<position>`, in a
    copy: what was received is not changed.
    """
    seen: set[str] = set()
    bad: list[int] = []
    for index, item in enumerate(response.output):
        if not item.HasField("function_call"):
            continue
        given = item.function_call.call_id
        if not given or given in seen:
            bad.append(index)
        else:
            seen.add(given)
    if not bad:
        return response
    copy = responses_pb2.Response()
    copy.CopyFrom(response)
    for index in bad:
        call = copy.output[index].function_call
        call.call_id = _fresh(f"{call_id}-f{index}", seen)
        seen.add(call.call_id)
        # An overlay's key would win over the field when JSON is written.
        call.overlay_json = overlay_without(call.overlay_json, "call_id")
    return copy


def token_counts(reply: model_pb2.CreateResponseResponse) -> tuple[int, int]:
    """How many tokens prompt and answer have: as the usage says, else as captured, else 0."""
    usage = reply.response.usage
    prompt, wrote = usage.input_tokens, usage.output_tokens
    # Only where it is 0, a number may not have been said at all.
    if not prompt and not _usage_has(usage, "input_tokens"):
        tokens = reply.tokens
        prompt = tokens.prompt_prefix_tokens + len(tokens.prompt_token_ids) // _TOKEN_BYTES
    if not wrote and not _usage_has(usage, "output_tokens"):
        wrote = len(reply.tokens.output_token_ids) // _TOKEN_BYTES
    # An endpoint may say anything, numbers below zero too.
    return prompt if prompt > 0 else 0, wrote if wrote > 0 else 0


def _told_apart(calls: Sequence[responses_pb2.FunctionCall]) -> bool:
    """Whether each of these has a call_id of its own."""
    if len(calls) == 1:
        return bool(calls[0].call_id)
    ids = {call.call_id for call in calls}
    return len(ids) == len(calls) and "" not in ids


def _fresh(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "x"
    return wanted

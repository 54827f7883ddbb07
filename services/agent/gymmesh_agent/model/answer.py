"""What the agent reads from a model's answer, and the few repairs that it makes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.loop import function_calls
from gymmesh_responses import Finish, finish_of, overlay_without, text_of
from gymmesh_runtime.errors import MeshError

_NO_ANSWER = frozenset(("failed", "cancelled", "in_progress", "queued"))
_TOKEN_BYTES = 4  # token ids are little-endian int32


class ModelCall(msgspec.Struct, frozen=True, eq=False):
    """A model call that was answered.

    Attributes:
        call_id: the call's id, unique within the attempt.
        actor: the actor that made the call; empty for the root agent.
        response: the answer, with a call_id for every function call.
        status: the answer's status.
        repaired: whether `response` differs from what was received, because call_ids were added.
        output: the answer's items.
        function_calls: the answer's function calls, in order.
        input_tokens: the number of tokens of the prompt; 0 if the service does not report it.
        output_tokens: the number of tokens of the answer; 0 if the service does not report it.
    """

    call_id: str
    actor: str
    response: responses_pb2.Response
    status: str
    repaired: bool
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
    """Read the answer to the model call `call_id`.

    Raises:
        MeshError: MODEL_ANSWER_INVALID for a response that is not an answer, with the endpoint's
            own code if there is one. MODEL_SERVER_ERROR for a response whose reason is a failure.
            Model services turn most of these responses into errors themselves.
    """
    response = reply.response
    status = response.status
    if status in _NO_ANSWER or response.HasField("error"):
        raise _no_answer(response)
    if status == "incomplete" and finish_of(response.incomplete_details.reason) is Finish.FAILED:
        raise _failed(response)
    output = tuple(response.output)
    calls = function_calls(output)
    given = {call.call_id for call in calls}
    repaired = len(given) < len(calls) or "" in given
    if repaired:
        response = with_call_ids(response, call_id)
        output = tuple(response.output)
        calls = function_calls(output)
    input_tokens, output_tokens = token_counts(reply)
    return ModelCall(
        call_id=call_id,
        actor=actor,
        response=response,
        status=status,
        repaired=repaired,
        output=output,
        function_calls=calls,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


def with_call_ids(response: responses_pb2.Response, call_id: str) -> responses_pb2.Response:
    """A copy of the response with a call_id for every function call, unique within the response.

    Only the call_id connects an output to its call. A call without a call_id, or with the call_id
    of an earlier call of the same answer, gets `<call_id of the model call>-f<position>`.
    """
    copy = responses_pb2.Response()
    copy.CopyFrom(response)
    seen: set[str] = set()
    bad: list[int] = []
    for index, item in enumerate(copy.output):
        if not item.HasField("function_call"):
            continue
        given = item.function_call.call_id
        if not given or given in seen:
            bad.append(index)
        else:
            seen.add(given)
    for index in bad:
        call = copy.output[index].function_call
        call.call_id = _unused(f"{call_id}-f{index}", seen)
        seen.add(call.call_id)
        # An overlay's key would win over the field when JSON is written.
        call.overlay_json = overlay_without(call.overlay_json, "call_id")
    return copy


def token_counts(reply: model_pb2.CreateResponseResponse) -> tuple[int, int]:
    """The numbers of tokens of prompt and answer: from the usage, or else from the captured
    tokens, or else 0.
    """
    usage = reply.response.usage
    prompt, output = usage.input_tokens, usage.output_tokens
    if not prompt and not usage.HasField("input_tokens"):
        tokens = reply.tokens
        prompt = tokens.prompt_prefix_tokens + len(tokens.prompt_token_ids) // _TOKEN_BYTES
    if not output and not usage.HasField("output_tokens"):
        output = len(reply.tokens.output_token_ids) // _TOKEN_BYTES
    # An endpoint may say anything, numbers below zero too.
    return max(prompt, 0), max(output, 0)


def _no_answer(response: responses_pb2.Response) -> MeshError:
    code = response.error.code or response.status
    return MeshError(
        errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID,
        f"the model service returned a failed response ({code}): "
        f"{response.error.message or 'no message'}",
        metadata={"cause": code},
    )


def _failed(response: responses_pb2.Response) -> MeshError:
    why = response.incomplete_details.reason[:100]
    return MeshError(
        errors_pb2.ERROR_REASON_MODEL_SERVER_ERROR,
        f"the model service returned an answer with finish reason {why!r}, which is a failure",
        metadata={"finish_reason": why},
    )


def _unused(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "x"
    return wanted

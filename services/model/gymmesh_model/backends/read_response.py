"""The response in an endpoint's answer, checked: pure."""

from __future__ import annotations

from typing import Any, Final

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import Counted
from gymmesh_model.backends.classify import failed_response
from gymmesh_model.errors import answer_invalid
from gymmesh_responses import (
    CodecError,
    fill_response,
    fill_usual,
    loads,
    response_document,
    response_to_dict,
)

# Of the class, since a message looks through the names of its fields to find its methods.
_HAS: Final = responses_pb2.Response.HasField
_KIND_OF: Final = responses_pb2.Item.WhichOneof
_OVER: Final = ("completed", "incomplete", "")


def read_response(name: str, answer: bytes, secrets: tuple[str, ...]) -> Counted:
    """The response in an endpoint's answer, within the message that the caller gets.

    Raises MeshError MODEL_ANSWER_INVALID when there is none, or the failure that it reports.
    """
    made = model_pb2.CreateResponseResponse()
    counts = fill_usual(made.response, answer)
    if counts is not None:
        return Counted(made, True, *counts)
    made = model_pb2.CreateResponseResponse()
    response = made.response
    try:
        fill_response(response, response_document(answer))
    except CodecError as error:
        raise answer_invalid(name, _cause(answer, error)) from None
    response.SetInParent()  # of an empty one nothing else says that it is there
    status = response.status
    if status == "failed" or _HAS(response, "error"):
        error_of: Any = response_to_dict(response).get("error") or {}
        raise failed_response(name, error_of, secrets)
    if response.output_omitted:
        raise answer_invalid(name, "it has no list 'output'")
    for index, item in enumerate(response.output[:]):  # a copy, which is cheaper to go through
        if _KIND_OF(item, "kind") == "opaque" and not item.opaque.type:
            raise answer_invalid(name, f"output[{index}] is not an item")
    if status not in _OVER:
        raise answer_invalid(name, f"its status is '{status}'")
    usage = response.usage  # without one there are none
    return Counted(made, status != "incomplete", usage.input_tokens, usage.output_tokens)


def _cause(answer: bytes, error: CodecError) -> str:
    try:
        loads(answer)
    except CodecError:
        return "body is not JSON"
    return str(error)

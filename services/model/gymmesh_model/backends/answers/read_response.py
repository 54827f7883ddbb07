"""Read a Responses endpoint's answer, and check that it is one. Pure."""

from __future__ import annotations

from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.endpoint.classify import failed_response
from gymmesh_model.errors import answer_invalid
from gymmesh_responses import CodecError, loads, response_from_json, response_to_dict

_OVER: Final = ("completed", "incomplete", "")


def read_response(name: str, secrets: tuple[str, ...], answer: bytes) -> responses_pb2.Response:
    """The response in an endpoint's answer.

    Raises MeshError MODEL_ANSWER_INVALID when there is none, or the failure that it reports.
    """
    try:
        response = response_from_json(answer)
    except CodecError as error:
        raise answer_invalid(name, _cause(answer, error)) from None
    status = response.status
    if status == "failed" or response.HasField("error"):
        error_of: Any = response_to_dict(response).get("error") or {}
        raise failed_response(name, error_of, secrets)
    if response.output_omitted:
        raise answer_invalid(name, "it has no list 'output'")
    for index, item in enumerate(response.output):
        if item.HasField("opaque") and not item.opaque.type:
            raise answer_invalid(name, f"output[{index}] is not an item")
    if status not in _OVER:
        raise answer_invalid(name, f"its status is '{status}'")
    return response


def _cause(answer: bytes, error: CodecError) -> str:
    try:
        loads(answer)
    except CodecError:
        return "body is not JSON"
    return str(error)

"""The response in an endpoint's answer, checked: no input and no output here."""

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
_MOST_PASSED: Final = 64


class ResponseReader:
    """Reads the answers of one model's endpoints, in one pass while they are usual ones.

    To try that in vain costs a third of reading an answer. So after an unusual one it is not tried
    with the next, after another not with the next two, and so on, up to 64.
    """

    def __init__(self, name: str, secrets: tuple[str, ...]) -> None:
        self._name = name
        self._secrets = secrets
        self._passed = 0
        self._to_pass = 1

    def read(self, answer: bytes) -> Counted:
        """See `read_response`."""
        if self._passed:
            self._passed -= 1
            return read_response(self._name, answer, self._secrets)
        made = model_pb2.CreateResponseResponse()
        counts = fill_usual(made.response, answer)
        if counts is None:
            self._passed = self._to_pass
            self._to_pass = min(2 * self._to_pass, _MOST_PASSED)
            return read_response(self._name, answer, self._secrets)
        self._to_pass = 1
        tokens_in, tokens_out = counts
        return Counted(made, True, tokens_in, tokens_out)


def read_response(name: str, answer: bytes, secrets: tuple[str, ...]) -> Counted:
    """The response in an endpoint's answer, within the message that the caller gets.

    Raises MeshError MODEL_ANSWER_INVALID when there is none, or the failure that it reports.
    """
    try:
        document = response_document(answer)
        plain = _is_plain(document)
        made = model_pb2.CreateResponseResponse()
        response = made.response
        fill_response(response, document)
    except CodecError as error:
        raise answer_invalid(name, _cause(answer, error)) from None
    if not plain:
        _check(name, response, secrets)
    usage = response.usage  # without one there are none
    is_whole = plain or response.status != "incomplete"
    return Counted(made, is_whole, usage.input_tokens, usage.output_tokens)


def _check(name: str, response: responses_pb2.Response, secrets: tuple[str, ...]) -> None:
    """Raises what `read_response` raises for one that is not plain."""
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


def _is_plain(document: dict[str, Any]) -> bool:
    """Whether it is complete, without an error, and every element of its output an item.

    Then no check of the message is needed, which costs more than this one.
    """
    output = document.get("output")
    if document.get("status") != "completed" or type(output) is not list:
        return False
    for item in output:
        kind = item.get("type") if type(item) is dict else None
        if type(kind) is not str or not kind:
            return False
    return type(document.get("error")) is not dict


def _cause(answer: bytes, error: CodecError) -> str:
    try:
        loads(answer)
    except CodecError:
        return "body is not JSON"
    return str(error)

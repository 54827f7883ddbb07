"""Anthropic's Messages API, behind the conversion of `gymmesh_model.messages_api`.

For policies that are evaluated, judges and simulated users: it returns no token ids.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers import read_object
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.calls import CallProgress, StreamReader
from gymmesh_model.backends.endpoint import failure_inside
from gymmesh_model.backends.hosted import HostedBackend, Json, whole_params
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import AnswerInvalid, answer_failed, answer_invalid, options_of
from gymmesh_model.ids import new_id
from gymmesh_model.messages_api import MessageFold, MessagesOptions, from_message, to_messages
from gymmesh_responses import CodecError, Finish, finish_of, response_from_json
from gymmesh_runtime.errors import MeshError

_VERSION: Final = "2023-06-01"
# The API's own words for a failure, as HTTP statuses.
_STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicBackend(HostedBackend):
    """`POST {url}/v1/messages`, at Anthropic's own address unless another is configured."""

    kind = "anthropic"
    needs_model = "the model's name, such as claude-sonnet-4-5"
    default_url = "https://api.anthropic.com"
    capabilities = model_pb2.ModelCapabilities(streaming=True, abort=True, images=True, tools=True)
    headers: Mapping[str, str] = {"anthropic-version": _VERSION}

    def __init__(self, name: str, config: ModelConfig) -> None:
        super().__init__(name, config)
        self._options = options_of(name, config.options, MessagesOptions)

    @classmethod
    def auth_headers(cls, api_key: str) -> Mapping[str, str]:
        """The headers that carry the key."""
        return {"x-api-key": api_key}

    def path(self, *, streamed: bool) -> str:
        return "/v1/messages"

    def body(self, call: BackendCall, *, streamed: bool) -> Json:
        body = to_messages(whole_params(call), self._options)
        return body | {"stream": True} if streamed else body

    def read(self, params: Mapping[str, Any], raw: bytes) -> responses_pb2.Response:
        message = read_message(self._name, raw, self._http.secrets)
        return respond(self._name, message, params)

    def reader(self, params: Mapping[str, Any], progress: CallProgress) -> StreamReader:
        return _MessageReader(self._name, params, progress, self._http.secrets)


def read_message(name: str, raw: bytes, secrets: tuple[str, ...]) -> Json:
    """A body or an event, parsed. Raises MeshError: not an object, or an error in disguise."""
    message = read_object(name, raw)
    if message.get("type") == "error":
        error = message.get("error")
        kind = error.get("type") if isinstance(error, Mapping) else None
        status = _STATUSES.get(str(kind), 500)
        told = error if isinstance(error, Mapping) else {"message": str(error)}
        raise failure_inside(name, {**told, "code": status}, secrets)
    return message


def respond(
    name: str, message: Mapping[str, Any], params: Mapping[str, Any], aborted: bool = False
) -> responses_pb2.Response:
    """The response for a message. Raises MeshError: it is a failure, or not an answer.

    params: of the call; their input does not count. aborted: whether the caller ended it.
    """
    finish = finish_of(message.get("stop_reason"))
    if not aborted and finish in (Finish.FAILED, Finish.ABORTED):
        raise answer_failed(name, message.get("stop_reason"))
    try:
        document = from_message(message, params, new_id=new_id, now=int(time.time()))
        return response_from_json(document)
    except (AnswerInvalid, CodecError) as error:
        raise answer_invalid(name, str(error)) from None


class _MessageReader:
    """Reads one streamed message."""

    def __init__(
        self,
        name: str,
        params: Mapping[str, Any],
        progress: CallProgress,
        secrets: tuple[str, ...],
    ) -> None:
        self._name = name
        self._params = params
        self._secrets = secrets
        self._fold = MessageFold(progress)
        self._message: dict[str, Any] | None = None
        self.ended = False
        progress.partial = self._partial

    def feed(self, data: bytes) -> None:
        """Takes the data of one event."""
        event = read_message(self._name, data, self._secrets)
        try:
            self._fold.add(event)
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None
        self.ended = self._fold.stopped

    def end(self) -> None:
        """The stream is over."""
        if not self._fold.stopped:
            raise answer_invalid(
                self._name, "the response's stream ended before the answer was complete"
            )

    def whole(self, body: bytes) -> None:
        """Takes a body that is no stream."""
        self._message = read_message(self._name, body, self._secrets)
        self.ended = True

    def respond(self) -> responses_pb2.Response:
        """The answer, once it is whole."""
        message = self._fold.document() if self._message is None else self._message
        return respond(self._name, message, self._params)

    def _partial(self) -> responses_pb2.Response | None:
        if not self._fold.begun:
            return None
        message = {**self._fold.document(), "stop_reason": "aborted"}
        try:
            return respond(self._name, message, self._params, aborted=True)
        except MeshError as error:
            if error.reason != errors.ERROR_REASON_MODEL_ANSWER_INVALID:
                raise
            return None

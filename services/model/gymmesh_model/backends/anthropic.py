"""Anthropic's Messages API, behind the conversion of `gymmesh_model.messages_api`.

For policies that are evaluated, judges and simulated users: it returns no token ids.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.endpoint import HttpEndpoint, failure_inside, sendable
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import write_whole
from gymmesh_model.errors import (
    AnswerInvalid,
    answer_failed,
    answer_invalid,
    options_of,
    unreadable,
)
from gymmesh_model.ids import new_id
from gymmesh_model.messages_api import MessageFold, MessagesOptions, from_message, to_messages
from gymmesh_responses import (
    CodecError,
    Finish,
    finish_of,
    items_to_list,
    loads,
    response_from_json,
)
from gymmesh_runtime.errors import MeshError

_PATH: Final = "/v1/messages"
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


class AnthropicBackend(Backend):
    """`POST {url}/v1/messages`, at Anthropic's own address unless another is configured."""

    kind = "anthropic"
    needs_url = False
    needs_model = "the model's name, such as claude-sonnet-4-5"
    default_url = "https://api.anthropic.com"
    capabilities = model_pb2.ModelCapabilities(streaming=True, abort=True, images=True, tools=True)

    def __init__(self, name: str, config: ModelConfig) -> None:
        self._options = options_of(name, config.options, MessagesOptions)
        self._name = name
        self._http = HttpEndpoint(name, config, self)
        self.features = Features(takes_items=True, pool=self._http.pool)
        self.endpoint_model = config.model or ""

    @classmethod
    def auth_headers(cls, api_key: str) -> Mapping[str, str]:
        """The headers that carry the key."""
        return {"x-api-key": api_key}

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        await self._http.close()

    def create(self, call: BackendCall) -> Coroutine[Any, Any, responses_pb2.Response]:
        body = sendable(lambda: write_whole(self._body(call)))
        read = partial(self._read, call.params)
        return self._http.post(
            *(_PATH, body, call.timeout, read, _HEADERS), key=call.rollout_id, log=call.retries
        )

    def stream(
        self, call: BackendCall, progress: CallProgress
    ) -> Coroutine[Any, Any, responses_pb2.Response]:
        body = write_whole(self._body(call) | {"stream": True})
        reader = partial(_MessageReader, self._name, call.params, progress, self._http.secrets)
        return self._http.stream(
            *(_PATH, body, call.timeout, reader, progress, _HEADERS),
            key=call.rollout_id,
            log=call.retries,
        )

    def _body(self, call: BackendCall) -> dict[str, Any]:
        params = call.params
        if call.items is not None:
            try:
                params = {**params, "input": items_to_list(call.items)}
            except CodecError as error:
                raise unreadable(error.within("input")) from None
        return to_messages(params, self._options)

    def _read(self, params: Mapping[str, Any], raw: bytes) -> responses_pb2.Response:
        message = read_message(self._name, raw, self._http.secrets)
        return respond(self._name, message, params)


_HEADERS: Final = {"anthropic-version": _VERSION}


def read_message(name: str, raw: bytes, secrets: tuple[str, ...]) -> dict[str, Any]:
    """A body or an event, parsed. Raises MeshError: not an object, or an error in disguise."""
    try:
        message = loads(raw)
    except CodecError:
        raise answer_invalid(name, "body is not JSON") from None
    if not isinstance(message, dict):
        raise answer_invalid(name, "body is not a JSON object")
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
            raise answer_invalid(self._name, "its stream ended before the answer did")

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

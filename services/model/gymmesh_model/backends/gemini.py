"""Gemini's generateContent, behind the conversion of `gymmesh_model.gemini_api`.

For policies that are evaluated, judges and simulated users: it returns no token ids.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

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
from gymmesh_model.gemini_api import (
    CandidateFold,
    CandidateParts,
    GeminiOptions,
    from_parts,
    to_generate,
)
from gymmesh_model.ids import new_id
from gymmesh_responses import (
    CodecError,
    Finish,
    finish_of,
    items_to_list,
    loads,
    response_from_json,
)
from gymmesh_runtime.errors import MeshError


class GeminiBackend(Backend):
    """`POST {url}/v1beta/models/{model}:generateContent`, at Google's own address unless another is
    configured.
    """

    kind = "gemini"
    needs_url = False
    default_url = "https://generativelanguage.googleapis.com"
    needs_model = "the model's name, such as gemini-2.5-pro"
    capabilities = model_pb2.ModelCapabilities(
        streaming=True, abort=True, images=True, tools=True, seed=True
    )

    def __init__(self, name: str, config: ModelConfig) -> None:
        options = options_of(name, config.options, GeminiOptions)
        self._name = name
        self._http = HttpEndpoint(name, config, self)
        self.features = Features(takes_items=True, pool=self._http.pool)
        self.endpoint_model = config.model or ""
        model = quote(self.endpoint_model.removeprefix("models/"), safe="")
        self._path = f"/{options.api_version}/models/{model}"

    @classmethod
    def auth_headers(cls, api_key: str) -> Mapping[str, str]:
        """The headers that carry the key."""
        return {"x-goog-api-key": api_key}

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        await self._http.close()

    def create(self, call: BackendCall) -> Coroutine[Any, Any, responses_pb2.Response]:
        body = sendable(lambda: write_whole(_body(call)))
        read = partial(self._read, call.params)
        url = f"{self._path}:generateContent"
        return self._http.post(url, body, call.timeout, read, key=call.rollout_id, log=call.retries)

    def stream(
        self, call: BackendCall, progress: CallProgress
    ) -> Coroutine[Any, Any, responses_pb2.Response]:
        body = write_whole(_body(call))
        reader = partial(_ChunkReader, self._name, call.params, progress, self._http.secrets)
        url = f"{self._path}:streamGenerateContent?alt=sse"
        return self._http.stream(
            url, body, call.timeout, reader, progress, key=call.rollout_id, log=call.retries
        )

    def _read(self, params: Mapping[str, Any], raw: bytes) -> responses_pb2.Response:
        found = CandidateParts(parts=[], head={})
        try:
            found.add(read_answer(self._name, raw, self._http.secrets))
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None
        return respond(self._name, found, params)


def _body(call: BackendCall) -> dict[str, Any]:
    params = call.params
    if call.items is not None:
        try:
            params = {**params, "input": items_to_list(call.items)}
        except CodecError as error:
            raise unreadable(error.within("input")) from None
    return to_generate(params, call.seed)


def read_answer(name: str, raw: bytes, secrets: tuple[str, ...]) -> dict[str, Any]:
    """A body or a chunk, parsed. Raises MeshError: not an object, or an error in disguise."""
    try:
        answer = loads(raw)
    except CodecError:
        raise answer_invalid(name, "body is not JSON") from None
    if not isinstance(answer, dict):
        raise answer_invalid(name, "body is not a JSON object")
    if answer.get("error"):
        raise failure_inside(name, answer["error"], secrets)
    return answer


def respond(name: str, found: CandidateParts, params: Mapping[str, Any]) -> responses_pb2.Response:
    """The response for an answer. Raises MeshError: it is a failure, or not an answer.

    params: of the call; their input does not count.
    """
    if finish_of(found.finish) is Finish.FAILED:
        raise answer_failed(name, found.finish)
    try:
        document = from_parts(found, params, new_id=new_id, now=int(time.time()))
        return response_from_json(document)
    except (AnswerInvalid, CodecError) as error:
        raise answer_invalid(name, str(error)) from None


class _ChunkReader:
    """Reads one streamed answer."""

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
        self._fold = CandidateFold(progress)
        self.ended = False
        progress.partial = self._partial

    def feed(self, data: bytes) -> None:
        """Takes the data of one event."""
        chunk = read_answer(self._name, data, self._secrets)
        try:
            self._fold.add(chunk)
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None

    def end(self) -> None:
        """The stream is over; its last chunk has a finish reason."""
        if self._fold.found.finish is None:
            raise answer_invalid(self._name, "its stream ended before the answer did")
        self.ended = True

    def whole(self, body: bytes) -> None:
        """Takes a body that is no stream."""
        self.feed(body)
        self.end()

    def respond(self) -> responses_pb2.Response:
        """The answer, once it is whole."""
        return respond(self._name, self._fold.found, self._params)

    def _partial(self) -> responses_pb2.Response | None:
        found = self._fold.found
        if not found.parts:
            return None
        aborted = CandidateParts(parts=found.parts, finish="aborted", head=found.head)
        try:
            return respond(self._name, aborted, self._params)
        except MeshError:
            return None

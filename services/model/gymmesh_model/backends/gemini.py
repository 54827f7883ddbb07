"""Gemini's generateContent, behind the conversion of `gymmesh_model.gemini_api`.

For policies that are evaluated, judges and simulated users: it returns no token ids.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers import read_object
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.calls import CallProgress, StreamReader
from gymmesh_model.backends.endpoint import failure_inside
from gymmesh_model.backends.hosted import HostedBackend, Json, whole_params
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import AnswerInvalid, answer_failed, answer_invalid, options_of
from gymmesh_model.gemini_api import (
    CandidateFold,
    CandidateParts,
    GeminiOptions,
    from_parts,
    to_generate,
)
from gymmesh_model.ids import new_id
from gymmesh_responses import CodecError, Finish, finish_of, response_from_json
from gymmesh_runtime.errors import MeshError


class GeminiBackend(HostedBackend):
    """`POST {url}/v1beta/models/{model}:generateContent`, at Google's own address unless another is
    configured.
    """

    kind = "gemini"
    default_url = "https://generativelanguage.googleapis.com"
    needs_model = "the model's name, such as gemini-2.5-pro"
    capabilities = model_pb2.ModelCapabilities(
        streaming=True, abort=True, images=True, tools=True, seed=True
    )

    def __init__(self, name: str, config: ModelConfig) -> None:
        super().__init__(name, config)
        options = options_of(name, config.options, GeminiOptions)
        model = quote(self.endpoint_model.removeprefix("models/"), safe="")
        self._path = f"/{options.api_version}/models/{model}"

    @classmethod
    def auth_headers(cls, api_key: str) -> Mapping[str, str]:
        """The headers that carry the key."""
        return {"x-goog-api-key": api_key}

    def path(self, *, streamed: bool) -> str:
        how = "streamGenerateContent?alt=sse" if streamed else "generateContent"
        return f"{self._path}:{how}"

    def body(self, call: BackendCall, *, streamed: bool) -> Json:
        return to_generate(whole_params(call), call.seed)

    def read(self, params: Mapping[str, Any], raw: bytes) -> responses_pb2.Response:
        found = CandidateParts(parts=[], head={})
        try:
            found.add(read_answer(self._name, raw, self._http.secrets))
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None
        return respond(self._name, found, params)

    def reader(self, params: Mapping[str, Any], progress: CallProgress) -> StreamReader:
        return _ChunkReader(self._name, params, progress, self._http.secrets)


def read_answer(name: str, raw: bytes, secrets: tuple[str, ...]) -> Json:
    """A body or a chunk, parsed. Raises MeshError: not an object, or an error in disguise."""
    answer = read_object(name, raw)
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
            raise answer_invalid(
                self._name, "the response's stream ended before the answer was complete"
            )
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

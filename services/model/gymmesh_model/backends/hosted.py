"""The common code of backends for hosted APIs; each backend adds its API's requests and answers.

For policies that are evaluated, judges and simulated users: no such API returns token ids.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_model.backends.calls import CallProgress, StreamReader
from gymmesh_model.backends.endpoint import HttpEndpoint, sendable
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import write_whole
from gymmesh_model.errors import unreadable
from gymmesh_responses import CodecError, items_to_list

Json = dict[str, Any]


class HostedBackend(Backend):
    """Posts JSON to one address.

    Attributes:
        headers: what each request has besides the key.
    """

    needs_url = False
    headers: Mapping[str, str] | None = None

    def __init__(self, name: str, config: ModelConfig) -> None:
        self._name = name
        self._http = HttpEndpoint(name, config, self)
        self.features = Features(takes_items=True, pool=self._http.pool)
        self.endpoint_model = config.model or ""

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        await self._http.close()

    def create(self, call: BackendCall) -> Coroutine[Any, Any, responses_pb2.Response]:
        body = sendable(lambda: write_whole(self.body(call, streamed=False)))
        read = partial(self.read, call.params)
        at = (self.path(streamed=False), body, call.timeout, read, self.headers)
        return self._http.post(*at, key=call.rollout_id, log=call.retries)

    def stream(
        self, call: BackendCall, progress: CallProgress
    ) -> Coroutine[Any, Any, responses_pb2.Response]:
        body = write_whole(self.body(call, streamed=True))
        reader = partial(self.reader, call.params, progress)
        at = (self.path(streamed=True), body, call.timeout, reader, progress, self.headers)
        return self._http.stream(*at, key=call.rollout_id, log=call.retries)

    @abstractmethod
    def path(self, *, streamed: bool) -> str:
        """The path below the address."""

    @abstractmethod
    def body(self, call: BackendCall, *, streamed: bool) -> Json:
        """The request's body. Raises MeshError PARAMETER_UNSUPPORTED or FIELD_INVALID."""

    @abstractmethod
    def read(self, params: Mapping[str, Any], raw: bytes) -> responses_pb2.Response:
        """The response for a whole answer. Raises MeshError with a MODEL_* reason."""

    @abstractmethod
    def reader(self, params: Mapping[str, Any], progress: CallProgress) -> StreamReader:
        """Reads one streamed answer to a call with these parameters."""


def whole_params(call: BackendCall) -> Mapping[str, Any]:
    """The parameters of a call with the conversation in them. Raises MeshError FIELD_INVALID."""
    if call.items is None:
        return call.params
    try:
        return {**call.params, "input": items_to_list(call.items)}
    except CodecError as error:
        raise unreadable(error.within("input")) from None

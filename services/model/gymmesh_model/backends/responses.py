"""An endpoint of the Responses API, spoken natively.

Parameters go out as they came, unknown ones included, but for those that are null: null is
the API's word for "not given", and many endpoints refuse it in places. Background
responses are not offered, and streaming is asked for by the RPC, not by a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers import ResponsesReader, read_response
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.endpoint import HttpEndpoint, sendable
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import with_sent_calls, write_whole
from gymmesh_model.errors import options_of, unreadable, unsupported
from gymmesh_responses import CodecError, items_to_list

_PATH: Final = "/responses"


class ResponsesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a `responses` model.

    keep_aborted: whether calls that can be aborted are streamed from the endpoint, so that an
        aborted call keeps the part of the answer that had arrived. Costs some work per token.
    """

    keep_aborted: bool = False


class ResponsesBackend(Backend):
    """`POST {url}/responses`."""

    kind = "responses"
    several_urls = True
    options_type: type[ResponsesOptions] = ResponsesOptions
    capabilities = model_pb2.ModelCapabilities(streaming=True, abort=True, images=True, tools=True)

    def __init__(self, name: str, config: ModelConfig) -> None:
        self._options: Any = options_of(name, config.options, self.options_type)
        self._name = name
        self._http = HttpEndpoint(name, config, self)
        self.features = Features(
            takes_items=True,
            keep_aborted=self._options.keep_aborted,
            pool=self._http.pool,
        )
        self.endpoint_model = config.model or ""

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        await self._http.close()

    def create(self, call: BackendCall) -> Coroutine[Any, Any, responses_pb2.Response]:
        body = sendable(partial(_written, call, self._native))
        read = partial(read_response, self._name, self._http.secrets)
        return self._http.post(
            _PATH, body, call.timeout, read, key=call.rollout_id, log=call.retries
        )

    def stream(
        self, call: BackendCall, progress: CallProgress
    ) -> Coroutine[Any, Any, responses_pb2.Response]:
        body = _written(call, self._native, streamed=True)
        reader = partial(ResponsesReader, self._name, self._http.secrets, progress)
        return self._http.stream(
            _PATH, body, call.timeout, reader, progress, key=call.rollout_id, log=call.retries
        )

    def _native(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return native_body(params)


def native_body(params: Mapping[str, Any]) -> dict[str, Any]:
    """The request's body. Raises MeshError PARAMETER_UNSUPPORTED."""
    body = {key: value for key, value in params.items() if value is not None}
    for key in ("background", "stream"):
        if body.pop(key, None):
            raise unsupported(key, "the model service always waits for the complete answer")
    if "input" in body:
        body["input"] = with_sent_calls(body["input"], body.get("tools"))
    return body


def _written(
    call: BackendCall,
    native: Callable[[Mapping[str, Any]], dict[str, Any]] = native_body,
    *,
    streamed: bool = False,
) -> bytes:
    """The body as JSON, of what `native` makes; raises MeshError as that, and FIELD_INVALID."""
    settings = call.settings
    if settings is None:
        body = native(call.params)
    else:
        if settings.made is None:
            settings.made = native(settings.params)
        try:
            items = call.params["input"] if call.items is None else items_to_list(call.items)
        except CodecError as error:
            raise unreadable(error.within("input")) from None
        body = {"input": with_sent_calls(items, settings.params.get("tools")), **settings.made}
    return write_whole({**body, "stream": True} if streamed else body)

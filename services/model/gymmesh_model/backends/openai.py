"""Hosted OpenAI through the `openai` package: the Responses API, natively.

The package does what belongs to OpenAI (authentication, organisation and project headers, the
connection); retries, time limits and the typing of failures are the service's own, as for
every other endpoint. Answers are read from the bytes that came, not from the package's
objects, so that nothing is lost that the package does not know.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers.responses import ResponsesReader, read_response
from gymmesh_model.backends.base import BackendCall, Features
from gymmesh_model.backends.calls.progress import CallProgress
from gymmesh_model.backends.endpoint.attempts import Attempts
from gymmesh_model.backends.endpoint.classify import http_failure
from gymmesh_model.backends.endpoint.concealed import secret_texts
from gymmesh_model.backends.endpoint.remedies import explain
from gymmesh_model.backends.endpoint.sse import read_events
from gymmesh_model.backends.responses import ResponsesOptions, native_body
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import whole
from gymmesh_model.errors import answer_invalid, misconfigured, options_of, unreachable
from gymmesh_model.routing import Pool, PoolEndpoint
from gymmesh_model.transport import MAX_BODY
from gymmesh_responses import TOOL_NAME_RULE, is_tool_name
from gymmesh_runtime.errors import field_invalid
from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_EXTRA: Final = Extra("openai", ("openai",))
_LOCAL: Final = ("", "localhost", "127.0.0.1", "::1")


class OpenAIOptions(ResponsesOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of an `openai` model: those of `responses`, and:

    organization, project: whose account pays, where the key alone does not say.
    """

    organization: str | None = None
    project: str | None = None


class OpenAIBackend:
    """`POST /responses` of OpenAI. Needs the extra `openai`."""

    backend = "openai"
    options_type: type[ResponsesOptions] = OpenAIOptions
    missing = "needs 'api_key', or the key in the environment variable OPENAI_API_KEY"
    capabilities = model_pb2.ModelCapabilities(streaming=True, abort=True, images=True, tools=True)

    def __init__(self, name: str, config: ModelConfig) -> None:
        options = options_of(name, config.options, self.options_type)
        pool = Pool.of(name, config)
        self._name = name
        self._config = config
        self._options: Any = options
        self._attempts = Attempts(pool, config.max_retries)
        self._client: AsyncOpenAI | None = None
        self._secrets: tuple[str, ...] = ()
        self.features = Features(keep_aborted=options.keep_aborted, pool=pool)
        self.endpoint_model = config.model or ""
        self.context_tokens = 0

    async def open(self) -> None:
        _EXTRA.require(f"backend '{self.backend}'", path=f"models.{self._name}")
        import openai

        try:
            self._client = self._make_client()
        except (openai.OpenAIError, ValueError, TypeError):
            # Not the package's words: they name its own arguments.
            raise misconfigured(self._name, self.missing) from None
        # The package takes some from the environment.
        taken = (self._client.api_key, getattr(self._client, "_azure_ad_token", None))
        self._secrets = secret_texts(self._config, *taken)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        body = whole(_body(call.params, self.backend))

        async def once(_: PoolEndpoint) -> responses_pb2.Response:
            async with self._posted(body) as response:
                answer = b"".join([piece async for piece in self._pieces(response)])
            return read_response(self._name, self._secrets, answer)

        return await self._attempts.run(once, call.timeout, key=call.rollout_id)

    async def stream(self, call: BackendCall, progress: CallProgress) -> responses_pb2.Response:
        body = {**whole(_body(call.params, self.backend)), "stream": True}

        async def once(_: PoolEndpoint) -> responses_pb2.Response:
            reader = ResponsesReader(self._name, self._secrets, progress)
            async with (
                self._posted(body) as response,
                contextlib.aclosing(self._pieces(response)) as pieces,
            ):
                if response.headers.get("Content-Type", "").startswith("text/event-stream"):
                    await read_events(reader, pieces)
                else:
                    reader.whole(b"".join([piece async for piece in pieces]))
            return reader.respond()

        return await self._attempts.run(once, call.timeout, lambda: progress.begun, call.rollout_id)

    def _make_client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        config = self._config
        return AsyncOpenAI(
            api_key=config.api_key or None,
            base_url=config.url,
            organization=self._options.organization,
            project=self._options.project,
            **self._common(),
        )

    def _common(self) -> dict[str, Any]:
        from openai import DefaultAsyncHttpxClient, Timeout

        host = urlsplit(self._config.url or "https://elsewhere").hostname or ""
        return {
            "max_retries": 0,
            "timeout": Timeout(None, connect=self._config.connect_timeout_s),
            # None is kept: a copy of an earlier answer on it would be taken for the next one.
            "default_headers": {**self._config.headers, "Connection": "close"},
            "http_client": DefaultAsyncHttpxClient(
                # Redirects are not followed: the key would go to the host that they name.
                follow_redirects=False,
                timeout=Timeout(None, connect=self._config.connect_timeout_s),
                # Proxies from the environment are for hosts outside this machine.
                trust_env=host not in _LOCAL,
            ),
        }

    @contextlib.asynccontextmanager
    async def _posted(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """The package's response, with status 200, its body still to be read in the block."""
        import openai

        client = self._client
        if client is None:
            raise unreachable(self._name, "the model service is closed")
        try:
            # As `extra_body`, every parameter goes out as it came, later ones included.
            async with client.responses.with_streaming_response.create(extra_body=body) as response:
                yield response
        except openai.APIStatusError as failure:
            answer = failure.response
            status, said = answer.status_code, answer.content
            error = http_failure(self._name, status, answer.headers, said, self._secrets)
            raise explain(error, str(failure.request.url), status, said) from None
        except openai.APIConnectionError as failure:
            cause = _cause(failure)
            if isinstance(failure, openai.APITimeoutError):
                cause = f"no connection within {self._config.connect_timeout_s:g} s"
            error = unreachable(self._name, cause, sent=not _is_unconnected(failure))
            raise explain(error, str(failure.request.url), said=cause) from None
        except UnicodeEncodeError:
            raise field_invalid(
                "params", "has an unpaired surrogate, which cannot be sent"
            ) from None

    async def _pieces(self, response: Any) -> AsyncGenerator[bytes, None]:
        pieces, size = response.iter_bytes(), 0
        while True:
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except Exception:
                # The transport's own errors; which library they are of depends on the
                # package's version.
                broken = "the connection broke inside the answer"
                raise unreachable(self._name, broken, sent=True) from None
            size += len(piece)
            if size > MAX_BODY:
                raise answer_invalid(self._name, f"it is larger than {MAX_BODY} bytes")
            yield piece


def _is_unconnected(failure: BaseException) -> bool:
    """Whether there was no connection, so that nothing was sent: by the name of the transport's
    error, since which library it is of depends on the package's version.
    """
    return type(failure.__cause__).__name__ in ("ConnectError", "ConnectTimeout", "ProxyError")


def _cause(failure: BaseException) -> str:
    """A few words without addresses."""
    inner: BaseException | None = failure
    while inner is not None:
        if isinstance(inner, ConnectionRefusedError):
            return "connection refused"
        inner = inner.__cause__ or inner.__context__
    name = type(failure.__cause__ or failure).__name__
    return "connection refused" if name == "ConnectError" else name


def _body(params: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """The request's body. Raises MeshError PARAMETER_UNSUPPORTED, and FIELD_INVALID for the name
    of a tool that OpenAI refuses, which other endpoints may take.
    """
    body = native_body(params, backend)
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if isinstance(name, str) and not is_tool_name(name):
            raise field_invalid(
                f"params.tools[{index}].name",
                f"is {name!r:.200}, which this endpoint refuses: it takes {TOOL_NAME_RULE}; rename "
                "the tool in the task",
            )
    return body

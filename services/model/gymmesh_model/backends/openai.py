"""Hosted OpenAI through the `openai` package: the Responses API, natively.

The package does what belongs to OpenAI (authentication, organisation and project headers, the
connection): it is the transport. Retries, time limits and the typing of failures are the service's
own, as for every other endpoint. Answers are read from the bytes that came, not from the package's
objects, so that nothing is lost that the package does not know.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gymmesh_model.backends.endpoint import secret_texts
from gymmesh_model.backends.responses import ResponsesBackend, ResponsesOptions
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import misconfigured
from gymmesh_model.transport import (
    MAX_BODY,
    Body,
    ConnectFailed,
    ConnectionLost,
    HttpAnswer,
    StreamedAnswer,
    TooLarge,
)
from gymmesh_responses import TOOL_NAME_RULE, is_tool_name, loads
from gymmesh_runtime.errors import field_invalid
from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_EXTRA: Final = Extra("openai", ("openai",))
_LOCAL: Final = ("", "localhost", "127.0.0.1", "::1")


class OpenAIOptions(ResponsesOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of an `openai` model, besides those of `responses`.

    organization, project: the account that pays, if the key alone does not determine it.
    """

    organization: str | None = None
    project: str | None = None


class OpenAIBackend(ResponsesBackend):
    """`POST /responses` of OpenAI. Needs the extra `openai`."""

    kind = "openai"
    needs_url = False
    several_urls = False
    options_type: type[ResponsesOptions] = OpenAIOptions
    missing = "needs 'api_key', or the key in the environment variable OPENAI_API_KEY"

    def __init__(self, name: str, config: ModelConfig) -> None:
        super().__init__(name, config)
        self._config = config

    async def open(self) -> None:
        _EXTRA.require(f"backend '{self.kind}'", path=f"models.{self._name}")
        import openai

        try:
            client = self._make_client()
        except (openai.OpenAIError, ValueError, TypeError):
            # Not the package's words: they name its own arguments.
            raise misconfigured(self._name, self.missing) from None
        # The package takes some from the environment.
        taken = (client.api_key, getattr(client, "_azure_ad_token", None))
        self._http.secrets = secret_texts(self._config, *taken)
        [endpoint] = self._http.pool.endpoints
        endpoint.base = str(client.base_url).rstrip("/")
        await self._http.open(PackageTransport(client, self._config.connect_timeout_s))

    def _native(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Raises FIELD_INVALID for a tool's name that OpenAI refuses; other endpoints may not."""
        body = super()._native(params)
        tools = body.get("tools")
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            name = tool.get("name") if isinstance(tool, Mapping) else None
            if isinstance(name, str) and not is_tool_name(name):
                raise field_invalid(
                    f"params.tools[{index}].name",
                    f"is {name!r:.200}, but this endpoint accepts only names of {TOOL_NAME_RULE}; "
                    "rename the tool in the task",
                )
        return body

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


class PackageTransport:
    """The package's client as a Transport, whatever the URL. connect_timeout: seconds."""

    def __init__(self, client: AsyncOpenAI, connect_timeout: float) -> None:
        self._client = client
        self._connect_timeout = connect_timeout

    async def post(self, url: str, body: Body, headers: Mapping[str, str] | None) -> HttpAnswer:
        sent = body if isinstance(body, bytes) else body()
        async with self.stream(url, sent, headers) as answer:
            return HttpAnswer(answer.status, answer.headers, await answer.read())

    async def get(self, url: str) -> HttpAnswer:
        raise ConnectFailed("the backend openai sends only model calls, no GET requests")

    @contextlib.asynccontextmanager
    async def stream(
        self, url: str, body: bytes, headers: Mapping[str, str] | None
    ) -> AsyncIterator[StreamedAnswer]:
        import openai

        # As `extra_body`, every parameter goes out as it came, later ones included.
        create = self._client.responses.with_streaming_response.create
        async with contextlib.AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(create(extra_body=loads(body)))
                answer = _PackageAnswer(response, response.iter_bytes())
            except openai.APIStatusError as failure:
                answer = _PackageAnswer(failure.response, failure.response.aiter_bytes())
            except openai.APITimeoutError:
                why = f"no connection within {self._connect_timeout:g} s"
                raise ConnectFailed(why) from None
            except openai.APIConnectionError as failure:
                # By the name of the error, since which library it is of depends on the version.
                cause = type(failure.__cause__).__name__
                unsent = cause in ("ConnectError", "ConnectTimeout", "ProxyError")
                raise (ConnectFailed if unsent else ConnectionLost)(_cause(failure)) from None
            yield answer

    async def close(self) -> None:
        await self._client.close()


class _PackageAnswer:
    """A StreamedAnswer: a response of the package, or of its error, and the pieces of its body."""

    def __init__(self, response: Any, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def pieces(self) -> AsyncIterator[bytes]:
        size = 0
        while True:
            try:
                piece = await anext(self._pieces)
            except StopAsyncIteration:
                return
            except Exception:
                # The library's own errors; which one it is depends on the package's version.
                raise ConnectionLost("the connection broke during the answer") from None
            size += len(piece)
            if size > MAX_BODY:
                raise TooLarge(f"the response is larger than {MAX_BODY} bytes")
            yield piece

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])


def _cause(failure: BaseException) -> str:
    """A few words without addresses."""
    inner: BaseException | None = failure
    while inner is not None:
        if isinstance(inner, ConnectionRefusedError):
            return "connection refused"
        inner = inner.__cause__ or inner.__context__
    name = type(failure.__cause__ or failure).__name__
    return "connection refused" if name == "ConnectError" else name

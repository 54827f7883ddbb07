"""OpenAI-compatible HTTP endpoints of one model: bytes out, bytes in, every failure typed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.calls import CallProgress, CallWeights, RetryLog, StreamReader
from gymmesh_model.backends.endpoint.attempts import Attempts
from gymmesh_model.backends.endpoint.classify import http_failure
from gymmesh_model.backends.endpoint.load_poll import follow_load
from gymmesh_model.backends.endpoint.remedies import excerpt, explain
from gymmesh_model.backends.endpoint.secret_texts import secret_texts
from gymmesh_model.backends.endpoint.sse import read_events
from gymmesh_model.backends.facts import BackendFacts
from gymmesh_model.config import AdaptConfig, ModelConfig
from gymmesh_model.errors import answer_invalid, is_abort, misconfigured, unreachable
from gymmesh_model.routing import Pool, PoolEndpoint
from gymmesh_model.transport import (
    Body,
    ConnectionLost,
    HttpAnswer,
    ProtocolViolated,
    StreamedAnswer,
    TooLarge,
    Transport,
    TransportError,
)
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import cancel_and_wait

T = TypeVar("T")

SHORT: Final = 4096
"""Up to this size, a body needs less memory than the values from which it is built."""


def sendable(make: Callable[[], bytes], weights: CallWeights | None = None) -> bytes | Sendable:
    """The body that `make` writes, for `HttpEndpoint.post`.

    A short body is kept, so its source need not be. A long one is dropped after sending, and so is
    one that names an adapter. weights: the call's. Raises the errors of `make`.
    """
    body = make()
    if len(body) <= SHORT and (weights is None or not weights.adapter):
        return exactly(body)
    return Sendable(make, body, weights)


def exactly(written: bytes) -> bytes:
    """A copy without the room that the JSON writer's own buffer has besides."""
    return bytes(memoryview(written))


class Sendable:
    """A long body, serialised again for each retry.

    The bytes are released after sending: most bodies are never sent again, and their source is in
    memory anyway.
    """

    __slots__ = ("_adapter", "_first", "_make", "_weights")

    def __init__(
        self,
        make: Callable[[], bytes],
        first: bytes | None = None,
        weights: CallWeights | None = None,
    ) -> None:
        """first: what `make` gave, if it was called already; else what it raises is raised.
        weights: of the call, whose adapter the body names; written anew for another one.
        """
        self._make = make
        self._first: bytes | None = make() if first is None else first
        self._weights = weights
        self._adapter = "" if weights is None else weights.adapter

    def __call__(self) -> bytes:
        first, self._first = self._first, None
        if self._weights is not None and self._weights.adapter != self._adapter:
            first = None
        return self._make() if first is None else first


class HttpEndpoint:
    """Calls to the endpoints of one model, `name` in the mesh.

    facts: of the backend that calls them: which headers carry the key, and whether the endpoints
    have metrics. pool: the endpoints, by the configured base URLs.
    """

    def __init__(self, name: str, config: ModelConfig, facts: BackendFacts) -> None:
        self._name = name
        self._facts = facts
        self._config = config
        self.pool = Pool.of(name, config)
        self._attempts = Attempts(self.pool, config.max_retries)
        self._transport: Transport | None = None
        self._following: list[asyncio.Task[None]] = []
        self.secrets = secret_texts(config)

    async def open(self, transport: Transport | None = None) -> None:
        """Connects to nothing yet. Raises ConfigError for a URL or header that cannot be sent.

        transport: what calls go over, in place of HTTP.
        """
        self._transport = transport or self._over_http()
        adapt = self._config.adapt or AdaptConfig()
        if self._facts.has_metrics if adapt.metrics is None else adapt.metrics:
            poll_s = adapt.poll_s
            for endpoint in self.pool.endpoints:
                self.follow(follow_load(self.pool, endpoint, self._transport, poll_s))

    def follow(self, watch: Coroutine[Any, Any, None]) -> None:
        """Runs what watches the endpoints, until `close`."""
        self._following.append(asyncio.create_task(watch))

    def _over_http(self) -> Transport:
        # Imported here, since aiohttp takes a while and other backends do without.
        from gymmesh_model.transport.client import HttpTransport
        from gymmesh_model.transport.target import HttpTarget

        config = self._config
        headers = {"Content-Type": "application/json", **config.headers}
        if config.api_key:
            headers.update(self._facts.auth_headers(config.api_key))
        try:
            for base in config.bases:
                HttpTarget(base, headers)
        except ValueError as error:
            raise misconfigured(self._name, f"requests cannot be sent: {error}") from None
        return HttpTransport(headers, config.connect_timeout_s)

    async def close(self) -> None:
        """Closes connections; calls in flight fail. Does nothing when not open."""
        following, self._following = self._following, []
        await cancel_and_wait(*following)
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    def post(
        self,
        url: str,
        body: Body,
        timeout: float,
        read: Callable[[bytes], T],
        headers: Mapping[str, str] | None = None,
        key: str = "",
        log: RetryLog | None = None,
        weights: CallWeights | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Posts JSON and returns what the answer with status 200 says, retrying where safe.

        url: a path below an endpoint's base URL (see `PoolEndpoint.at`), or a whole URL.
        body: bytes, or a function that makes them each time they are sent. key: the rollout that
        the call is for, which decides on the endpoint. timeout: seconds for it all. log: where
        retries are noted. read: makes
        the result of the answer's body, or raises the failure that the body reports, so that
        it counts as one of the call. weights: those that the call is made with; an answer that is
        aborted since they change is asked for again, which is no retry. Raises MeshError with a
        MODEL_* reason; after retries it is the last failure, whose metadata then has `attempts`.
        """

        async def once(endpoint: PoolEndpoint) -> T:
            at = endpoint.at(url)
            while True:
                if weights is not None:
                    await weights.before_request(again=not isinstance(body, bytes))
                try:
                    answer = await self._opened().post(at, body, headers)
                except TransportError as error:
                    raise self._failure(error, at) from None
                if answer.status != 200:
                    raise self._refusal(answer, answer.body, at)
                try:
                    return read(answer.body)
                except MeshError as error:
                    if weights is None or not (is_abort(error) and weights.explains_abort()):
                        raise self._explained(error, at, answer.body) from None

        return self._attempts.run(once, timeout, key=key, log=log)

    async def post_to_all(self, path: str, bodies: Sequence[bytes], timeout: float) -> bool:
        """Posts each body to each endpoint, such as the abort of a call that any of them may have.
        Returns whether one answered with status 200; what fails is not raised.
        """
        asked = (
            self.post(endpoint.at(path), body, timeout, lambda _: True)
            for endpoint in self.pool.endpoints
            for body in bodies
        )
        return any(one is True for one in await asyncio.gather(*asked, return_exceptions=True))

    async def get(self, url: str) -> HttpAnswer:
        """The whole answer to a GET, whatever its status; not tried again.

        url: a whole URL. Raises TransportError, and MeshError when closed.
        """
        return await self._opened().get(url)

    async def stream(
        self,
        url: str,
        body: bytes,
        timeout: float,
        make_reader: Callable[[], StreamReader],
        progress: CallProgress,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        log: RetryLog | None = None,
        weights: CallWeights | None = None,
    ) -> responses_pb2.Response:
        """Posts JSON, feeds the streamed answer to a reader, and returns what that has read.

        url, key, timeout, log, weights: as for `post`, but an aborted answer is a failure.
        make_reader: a new one for each try. progress: of the call, which is not tried again once
        it has begun. Raises MeshError with a MODEL_* reason.
        """

        async def once(endpoint: PoolEndpoint) -> StreamReader:
            reader, at = make_reader(), endpoint.at(url)
            if weights is not None:
                await weights.before_request(again=False)
            try:
                async with self._opened().stream(at, body, headers) as answer:
                    if answer.status != 200:
                        raise self._refusal(answer, await answer.read(), at)
                    if answer.content_type == "text/event-stream":
                        await read_events(reader, answer.pieces())
                        return reader
                    whole = await answer.read()
            except TransportError as error:
                raise self._failure(error, at) from None
            try:
                reader.whole(whole)
            except MeshError as error:
                raise self._explained(error, at, whole) from None
            return reader

        read = await self._attempts.run(once, timeout, lambda: progress.begun, key, log)
        return read.respond()

    def _opened(self) -> Transport:
        if self._transport is None:
            raise unreachable(self._name, "the model service is closed")
        return self._transport

    def _refusal(self, answer: HttpAnswer | StreamedAnswer, body: bytes, url: str) -> MeshError:
        error = http_failure(self._name, answer.status, answer.headers, body, self.secrets)
        return explain(error, url, answer.status, body)

    def _explained(self, error: MeshError, url: str, body: bytes) -> MeshError:
        """The failure that an answer with status 200 reports, or is."""
        if error.reason == errors.ERROR_REASON_MODEL_ANSWER_INVALID:
            error.message += f"; it begins with: {excerpt(body, self.secrets) or '(nothing)'}"
        return explain(error, url, 200, body)

    def _failure(self, error: TransportError, url: str) -> MeshError:
        said = str(error)
        if isinstance(error, ProtocolViolated | TooLarge):
            return explain(answer_invalid(self._name, said), url, said=said)
        sent = isinstance(error, ConnectionLost)
        return explain(unreachable(self._name, said, sent=sent), url, said=said)

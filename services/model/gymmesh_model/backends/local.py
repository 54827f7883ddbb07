"""The embedded model: llama.cpp's server as a child process, tools through constrained answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers import ChatFold
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_model.backends.calls import CallProgress
from gymmesh_model.backends.chat import STREAMED, ChatReader, read_answer, respond
from gymmesh_model.backends.endpoint import HttpEndpoint
from gymmesh_model.backends.llama_scores import LlamaScoring
from gymmesh_model.config import ModelConfig
from gymmesh_model.convert import ChatOptions, to_chat, write_whole
from gymmesh_model.errors import misconfigured, options_of, timed_out, unreachable
from gymmesh_model.local import (
    ConstraintOptions,
    LocalModelError,
    LocalServer,
    constrain,
    interpret,
    is_constrained,
    resolve_weights,
)
from gymmesh_responses import dumps

_SEEDS = 2**31


class LocalOptions(ConstraintOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a `local` model, besides how answers are constrained.

    context: tokens of prompt and answer together, per slot. slots: calls computed at a time.
    threads: of computation, or null for one per core. start_s: seconds for loading the model.
    """

    context: int = 2048
    slots: int = 4
    threads: int | None = None
    start_s: float = 120.0


class LocalBackend(Backend):
    """One `LocalServer`, started on `open` and again when it has died."""

    kind = "local"
    names_model = False  # `model` is the weights' file
    calls_endpoint = False
    computes_here = True
    capabilities = model_pb2.ModelCapabilities(
        streaming=True, abort=True, tools=True, seed=True, scoring=True
    )

    def __init__(self, name: str, config: ModelConfig) -> None:
        self._options: LocalOptions = options_of(name, config.options, LocalOptions)
        self._name = name
        self._config = config
        self._http = HttpEndpoint(name, config, self)
        self._chat = ChatOptions(reasoning_key=None)
        self._server: LocalServer | None = None
        self._starting = asyncio.Lock()
        self.endpoint_model = Path(config.model).name if config.model else "default"
        self.context_tokens = self._options.context
        # Next to computing a token here, streaming it costs nothing.
        self.features = Features(keep_aborted=True, pool=self._http.pool)

    @classmethod
    async def fetch_weights(cls, model: str | None) -> Path | None:
        try:
            return await resolve_weights(model)
        except LocalModelError as error:
            raise ValueError(str(error)) from None

    async def open(self) -> None:
        options = self._options
        try:
            weights = await resolve_weights(self._config.model)
            self.endpoint_model = weights.stem
            self._server = LocalServer(
                weights, options.threads, options.context, options.slots, options.start_s
            )
            await self._server.start()
        except LocalModelError as error:
            raise misconfigured(self._name, str(error)) from None
        await self._http.open()

    async def close(self) -> None:
        await self._http.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        body = self._body(call)
        server = await self._running(call.timeout)
        answer = await self._http.post(
            f"{server.base_url}/chat/completions",
            write_whole(constrain(body, self._options), dumps),
            call.timeout,
            lambda raw: read_answer(self._name, raw),
            server.headers,
            log=call.retries,
        )
        return respond(self._name, self._read(body, answer), call.params)

    async def stream(self, call: BackendCall, progress: CallProgress) -> responses_pb2.Response:
        body = self._body(call)
        server = await self._running(call.timeout)
        # A constrained answer comes as JSON whose meaning shows only at its end: no deltas.
        shown = not is_constrained(body, self._options)

        def reader() -> ChatReader:
            fold = ChatFold(progress if shown else CallProgress())
            read = partial(self._read, body)
            return ChatReader(self._name, fold, call.params, progress, rewrite=read)

        return await self._http.stream(
            f"{server.base_url}/chat/completions",
            write_whole(constrain(body, self._options) | STREAMED, dumps),
            call.timeout,
            reader,
            progress,
            server.headers,
            log=call.retries,
        )

    async def score(
        self, call: BackendCall, continuations: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        messages = constrain(self._body(call), self._options)["messages"]
        deadline = asyncio.get_running_loop().time() + call.timeout
        server = await self._running(call.timeout)
        scoring = LlamaScoring(
            self._http,
            self._name,
            server.base_url.removesuffix("/v1"),
            server.headers,
            self.context_tokens,
            deadline,
            call.retries,
        )
        return await scoring.run(messages, continuations)

    def _body(self, call: BackendCall) -> dict[str, Any]:
        seed = None if call.seed is None else call.seed % _SEEDS
        return to_chat({**call.params, "model": self.endpoint_model}, self._chat, seed=seed)

    def _read(self, body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        return {**interpret(answer, body, self._options), "model": self.endpoint_model}

    async def _running(self, timeout: float) -> LocalServer:
        """The server, started again within `timeout` where it has died."""
        server = self._server
        if server is None:
            raise unreachable(self._name, "the model service is closed")
        if not server.running:
            try:
                async with asyncio.timeout(timeout), self._starting:
                    await server.start()
            except TimeoutError:
                where = "the server of the embedded model did not start"
                raise timed_out(self._name, timeout, where) from None
            except LocalModelError as error:
                raise unreachable(self._name, str(error)) from None
        return server

"""The backend of a configuration that names a server of token ids."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.backends.token_engines.engine import ServerEngine
from gymmesh_model.backends.token_engines.tokenizer import load_tokenizer
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import misconfigured, options_of, unreachable


class TokenOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a model behind a server of token ids.

    tokenizer: the model's tokenizer, with its chat template: a folder, a Hugging Face id, or
        `module:function` that returns one.
    tool_parser: the format of tool calls in the model's text: `hermes`, `llama` or `mistral`; null:
        the renderer of the model's family reads them (extra `renderers`); without a renderer,
        `hermes`.
    think_tags: whether `<think>…</think>` at the beginning of an answer is reasoning.
    template: additional arguments of the chat template, such as `{enable_thinking: false}`.
    stop_token_ids: the ids that end an answer; null: the tokenizer's end of sequence.
    context_tokens: the most tokens of prompt and answer together; 0: the server's value.
    priority: the priority of requests, if the server schedules by priority.
    """

    tokenizer: str
    tool_parser: str | None = None
    think_tags: bool = False
    template: dict[str, Any] = {}
    stop_token_ids: list[int] | None = None
    context_tokens: int = 0
    priority: int = 0


class ConfiguredTokens(Backend):
    """A `TokenBackend` whose engine and tokenizer a configuration names.

    A subclass says by which engine, and what the options of its models are.
    """

    several_urls = True
    has_metrics = True
    capabilities = model_pb2.ModelCapabilities(
        token_ids=True,
        logprobs=True,
        conversations=True,
        tools=True,
        seed=True,
        append_only=True,
        scoring=True,
    )

    def __init__(self, name: str, config: ModelConfig) -> None:
        self._name = name
        self._config = config
        self._options = options_of(name, config.options, self.options_type())
        self._engine = self.engine(name, config, self._options)
        self._backend: TokenBackend | None = None
        self.features = msgspec.structs.replace(self._engine.features, takes_items=True)
        self.endpoint_model = config.model or ""
        self.capabilities = model_pb2.ModelCapabilities(side_data=self._engine.side_data)
        self.capabilities.MergeFrom(type(self).capabilities)

    @classmethod
    @abstractmethod
    def options_type(cls) -> type[TokenOptions]:
        """The struct of its models' `options`."""

    @classmethod
    @abstractmethod
    def engine(cls, name: str, config: ModelConfig, options: Any) -> ServerEngine:
        """The engine of a model. options: of the type above."""

    async def open(self) -> None:
        options = self._options
        tokenizer = await asyncio.to_thread(load_tokenizer, self._name, options.tokenizer)
        try:
            self._backend = TokenBackend(
                tokenizer,
                self._engine,
                tool_parser=options.tool_parser,
                stop_token_ids=options.stop_token_ids,
                context_tokens=options.context_tokens,
                template=options.template,
                think_tags=options.think_tags,
                name=self.endpoint_model or self._name,
            )
        except ValueError as error:
            raise misconfigured(self._name, f"options.{error}") from None
        self.context_tokens = options.context_tokens
        # A tokenizer of the configuration's own may lack what scoring needs.
        known = model_pb2.ModelCapabilities()
        known.CopyFrom(self.capabilities)
        known.scoring = self._backend.capabilities.scoring
        self.capabilities = known
        await self._backend.open()

    async def close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.close()

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        backend = self._opened()
        answer = await backend.create(call)
        self.context_tokens = backend.context_tokens
        return answer

    async def score(
        self, call: BackendCall, continuations: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        backend = self._opened()
        scores = await backend.score(call, continuations)
        self.context_tokens = backend.context_tokens
        return scores

    def _opened(self) -> TokenBackend:
        if self._backend is None:
            raise unreachable(self._name, "the model service is closed")
        return self._backend

"""An SGLang server, called by token ids; the rest is as for the backend `vllm_tokens`."""

from __future__ import annotations

from gymmesh_model.backends.token_engines import (
    ConfiguredTokens,
    ServerEngine,
    SglangGenerate,
    TokenOptions,
)
from gymmesh_model.config import ModelConfig


class SglangOptions(TokenOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of an `sglang` model, besides those of `TokenOptions`.

    original_logprobs: whether the server runs with `SGLANG_RETURN_ORIGINAL_LOGPROB`.
    """

    original_logprobs: bool = False


class SglangBackend(ConfiguredTokens):
    """`POST {url}/generate` of SGLang with token ids."""

    kind = "sglang"

    @classmethod
    def options_type(cls) -> type[SglangOptions]:
        return SglangOptions

    @classmethod
    def engine(cls, name: str, config: ModelConfig, options: SglangOptions) -> ServerEngine:
        protocol = SglangGenerate(
            priority=options.priority, original_logprobs=options.original_logprobs
        )
        return ServerEngine(name, config, protocol)

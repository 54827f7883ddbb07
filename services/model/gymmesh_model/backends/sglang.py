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
    routed_experts: the model's layers and experts per token, such as `[48, 8]`, if the server runs
        with `--enable-return-routed-experts`. They can then be captured as side data. null: the
        server returns none.
    """

    original_logprobs: bool = False
    routed_experts: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.routed_experts is not None and min(self.routed_experts) < 1:
            raise ValueError("'routed_experts' must be two whole numbers, each at least 1")


class SglangBackend(ConfiguredTokens):
    """`POST {url}/generate` of SGLang with token ids."""

    kind = "sglang"

    @classmethod
    def options_type(cls) -> type[SglangOptions]:
        return SglangOptions

    @classmethod
    def engine(cls, name: str, config: ModelConfig, options: SglangOptions) -> ServerEngine:
        protocol = SglangGenerate(
            priority=options.priority,
            original_logprobs=options.original_logprobs,
            experts=options.routed_experts,
        )
        return ServerEngine(name, config, protocol)

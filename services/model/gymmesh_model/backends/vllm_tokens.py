"""A vLLM server of any version, called by token ids: exact tokens without its chat endpoint.

The chat template, tool calls and the exact-token law are done here (`TokenBackend`), with the
model's own tokenizer. vLLM 0.32 and later need no tokenizer here: see the backend `vllm`.
"""

from __future__ import annotations

from typing import Literal

from gymmesh_model.backends.routed_experts import ROUTED_EXPERTS
from gymmesh_model.backends.token_engines import (
    ConfiguredTokens,
    LogprobsMode,
    ServerEngine,
    TokenOptions,
    VllmCompletions,
    VllmGenerate,
)
from gymmesh_model.config import ModelConfig


class VllmTokensOptions(TokenOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a `vllm_tokens` model, besides those of `TokenOptions`.

    logprobs_mode: the server's `--logprobs-mode`, `raw_logprobs` or `processed_logprobs`; null:
        found out by a request for one token.
    weights_poll_s: seconds between two questions for the version of the weights, where the server
        answers them; 0 asks never.
    routed_experts: whether the server runs with `--enable-return-routed-experts`, so that they can
        be captured as side data.
    api: where the server is asked: `POST /v1/completions`; or `POST /inference/v1/generate` (0.32
        and later, `--enable-scale-out`), whose answers say which weights sampled each token.
    """

    logprobs_mode: LogprobsMode | None = None
    weights_poll_s: float = 2.0
    routed_experts: bool = False
    api: Literal["completions", "generate"] = "completions"

    def __post_init__(self) -> None:
        if not 0 <= self.weights_poll_s < float("inf"):
            raise ValueError("'weights_poll_s' must not be negative")
        if self.routed_experts and self.api == "generate":
            raise ValueError("'routed_experts' needs 'api: completions'")


class VllmTokensBackend(ConfiguredTokens):
    """`POST {url}/completions` of vLLM with token ids."""

    kind = "vllm_tokens"

    @classmethod
    def options_type(cls) -> type[VllmTokensOptions]:
        return VllmTokensOptions

    @classmethod
    def engine(cls, name: str, config: ModelConfig, options: VllmTokensOptions) -> ServerEngine:
        protocol = (VllmGenerate if options.api == "generate" else VllmCompletions)(
            model=config.model or "",
            priority=options.priority,
            logprobs_mode=options.logprobs_mode,
            side_data=(ROUTED_EXPERTS,) if options.routed_experts else (),
        )
        return ServerEngine(name, config, protocol, weights_poll_s=options.weights_poll_s)

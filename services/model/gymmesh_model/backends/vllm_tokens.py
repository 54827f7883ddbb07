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
        a request for one token finds it out.
    weights_poll_s: seconds between two requests for the version of the weights, if the server
        answers them; 0: never.
    routed_experts: whether the server runs with `--enable-return-routed-experts`, so that they can
        be captured as side data.
    api: the server's API to call: `completions` (`POST /v1/completions`), or `generate` (`POST
        /inference/v1/generate`, vLLM 0.32 and later with `--enable-scale-out`). Answers of
        `generate` say which weights sampled each token.
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

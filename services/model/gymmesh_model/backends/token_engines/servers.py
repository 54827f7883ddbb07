"""Engines as a program makes them: `TokenBackend(tokenizer, VllmEngine("http://gpu-0:8000/v1"))`.

They add no limit of their own to the number of calls or to a call's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from gymmesh_model.backends.routed_experts import ROUTED_EXPERTS
from gymmesh_model.backends.token_engines.engine import ServerEngine
from gymmesh_model.backends.token_engines.sglang_protocol import SglangGenerate
from gymmesh_model.backends.token_engines.vllm_protocols import (
    LogprobsMode,
    VllmCompletions,
    VllmGenerate,
)
from gymmesh_model.config import ModelConfig
from gymmesh_runtime.config import Secret

# Calls at a time, where a program sets no limit; a server's refusals make it fewer.
_ANY: Final = 2**31 - 1


class VllmEngine(ServerEngine):
    """vLLM of any version, called with token ids.

    Args:
        url: the server's base URL, version included (`http://gpu-0:8000/v1`), or several.
        model: the model's name at the server; empty: the model that the server serves.
        api_key: sent as a bearer token.
        headers: additional HTTP headers; treated as secret.
        max_retries: how often a failed call is retried.
        logprobs_mode: the server's `--logprobs-mode`. It decides which distribution the log
            probabilities refer to. None: a request for one token finds it out.
        priority: the priority of requests, if the server schedules by priority.
        weights_poll_s: seconds between two requests for the version of the weights.
        routed_experts: whether the server runs with `--enable-return-routed-experts`.
        api: the server's API to call: `completions`, or `generate` (vLLM 0.32 and later, with
            `--enable-scale-out`). Answers of `generate` say which weights sampled each token.

    Raises ValueError for a URL that can't be one.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        model: str = "",
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        max_retries: int = 2,
        logprobs_mode: LogprobsMode | None = None,
        priority: int = 0,
        weights_poll_s: float = 2.0,
        routed_experts: bool = False,
        api: Literal["completions", "generate"] = "completions",
    ) -> None:
        if routed_experts and api == "generate":
            raise ValueError("the argument 'routed_experts' needs api='completions'")
        protocol = VllmGenerate if api == "generate" else VllmCompletions
        super().__init__(
            "policy",
            _endpoints("vllm_tokens", url, api_key, headers, max_retries),
            protocol(
                model=model,
                priority=priority,
                logprobs_mode=logprobs_mode,
                side_data=(ROUTED_EXPERTS,) if routed_experts else (),
            ),
            weights_poll_s=weights_poll_s,
        )


class SglangEngine(ServerEngine):
    """SGLang by `POST {url}/generate`.

    Args:
        url: the server's URL (`http://gpu-0:30000`), or several.
        api_key, headers, max_retries, priority: as for `VllmEngine`.
        original_logprobs: whether the server runs with `SGLANG_RETURN_ORIGINAL_LOGPROB`.
        routed_experts: the model's layers and experts per token, if the server runs with
            `--enable-return-routed-experts`; None: the server returns no routed experts.

    Raises ValueError for a URL that can't be one.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        max_retries: int = 2,
        priority: int = 0,
        original_logprobs: bool = False,
        routed_experts: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(
            "policy",
            _endpoints("sglang", url, api_key, headers, max_retries),
            SglangGenerate(
                priority=priority, original_logprobs=original_logprobs, experts=routed_experts
            ),
        )


def _endpoints(
    backend: str,
    url: str | Sequence[str],
    api_key: str,
    headers: Mapping[str, str] | None,
    max_retries: int,
) -> ModelConfig:
    return ModelConfig(
        backend=backend,
        urls=[url] if isinstance(url, str) else list(url),
        api_key=Secret(api_key) if api_key else None,
        headers={name: Secret(value) for name, value in (headers or {}).items()},
        max_retries=max_retries,
        max_concurrency=_ANY,
    )

"""rLLM's model gateway; run by the Python of its own environment.

It keeps a trace of each call, with its tokens, and says nothing of how calls hang together. A trace
is counted as a training sample of its own.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hosting import host
from rllm_model_gateway.models import GatewayConfig, WorkerConfig
from rllm_model_gateway.server import create_app
from serving import got, posted, served

_SESSION = "rollout-1"


class Rollout:
    """One session."""

    key = "EMPTY"

    def __init__(self, url: str) -> None:
        self.url = f"{url}/sessions/{_SESSION}"

    async def finish(self) -> dict[str, Any]:
        """The traces."""
        traces = await got(f"{self.url}/traces")
        return {"calls": [_call(one) for one in traces], "samples": _samples(traces)}


def _call(trace: dict[str, Any]) -> dict[str, Any]:
    call: dict[str, Any] = {"parent": None, "is_placed": False, "is_trained": None}
    if trace["completion_token_ids"]:
        call["tokens"] = {
            "prompt": trace["prompt_token_ids"],
            "output": trace["completion_token_ids"],
            "logprobs": trace["logprobs"],
        }
    return call


def _samples(traces: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    if not all(one["completion_token_ids"] for one in traces):
        return None  # of an API without tokens
    return [
        {
            "ids": one["prompt_token_ids"] + one["completion_token_ids"],
            "mask": [0] * len(one["prompt_token_ids"]) + [1] * len(one["completion_token_ids"]),
            "logprobs": [0.0] * len(one["prompt_token_ids"]) + (one["logprobs"] or []),
        }
        for one in traces
    ]


@asynccontextmanager
async def opened(upstream: str, program: str) -> AsyncIterator[Rollout]:
    """A session at a gateway whose worker is the suite's endpoint."""
    config = GatewayConfig(
        workers=[WorkerConfig(url=upstream)], store_worker="memory", sync_traces=True
    )
    async with served(create_app(config)) as url:
        await posted(f"{url}/sessions", {"session_id": _SESSION})
        yield Rollout(url)


if __name__ == "__main__":
    host("rllm-model-gateway", opened)

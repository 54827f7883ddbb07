"""Agent Lightning's proxy; run by the Python of its own environment.

It keeps an event of each call, with its tokens, and says nothing of how calls hang together. Its
trainer's adapter makes a sample of each call unless told otherwise (`trace_aggregator_level:
transition`), and so does this file.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agentlightning.server.app import create_app
from agentlightning.server.store import _events, _models, _rollouts
from hosting import host
from serving import posted, served

_ROLLOUT = "rollout-1"
_CONFIG = {
    "key": "",
    "default_proxy": {
        "model_name": "m",
        "include_log_probs": True,
        "train": {"temperature": 1},
        "val": {"temperature": 1},
    },
}


class Rollout:
    """One rollout's attempt."""

    key = "none"

    def __init__(self, url: str) -> None:
        self.url = f"{url}/proxy/rollout/{_ROLLOUT}/attempt/0/mode/train/openai"

    async def finish(self) -> dict[str, Any]:
        """The events of model requests that were answered."""
        made = [
            event.data["response"]
            for events in _events[_ROLLOUT].values()
            for event in events
            if event.event_type == "model_request" and event.data["status"] == "ok"
        ]
        tokens = [_tokens(one) for one in made]
        return {
            "calls": [
                {"parent": None, "is_placed": False, "is_trained": None, "tokens": one}
                for one in tokens
            ],
            "samples": [
                {
                    "ids": one["prompt"] + one["output"],
                    "mask": [0] * len(one["prompt"]) + [1] * len(one["output"]),
                    "logprobs": [0.0] * len(one["prompt"]) + one["logprobs"],
                }
                for one in tokens
            ],
        }


def _tokens(answer: dict[str, Any]) -> dict[str, Any]:
    (choice,) = answer["choices"]
    return {
        "prompt": answer["prompt_token_ids"],
        "output": choice["token_ids"],
        "logprobs": [one["logprob"] for one in choice["logprobs"]["content"]],
    }


@asynccontextmanager
async def opened(upstream: str, program: str) -> AsyncIterator[Rollout]:
    """A rollout whose model is the suite's endpoint."""
    for kept in (_events, _models, _rollouts):
        kept.clear()
    async with served(create_app(_CONFIG)) as url:
        await posted(f"{url}/api/models", [{"model": "m", "endpoint": upstream}])
        await posted(
            f"{url}/api/rollouts", [{"rollout_id": _ROLLOUT, "input": {}, "is_train": True}]
        )
        yield Rollout(url)


if __name__ == "__main__":
    host("agentlightning", opened)

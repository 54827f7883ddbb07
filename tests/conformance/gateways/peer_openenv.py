"""OpenEnv's capture proxy; run by the Python of its own environment."""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hosting import host
from openenv.core.harness.capture.server import create_app
from serving import got, posted, served

_KEY = "rollout-1"


class Rollout:
    """One session."""

    def __init__(self, url: str, app: Any) -> None:
        self.url = url
        self.key = _KEY
        self._app = app

    async def finish(self) -> dict[str, Any]:
        """The graph's nodes, and the sequences that its export calls trainable."""
        graph = self._app.state.registry.get(_KEY).graph
        document = await got(f"{self.url}/sessions/{_KEY}/rollout")
        sequences = [one for one in document["sequences"] if one["trainable"]]
        trained = {node for one in sequences for node in one["node_ids"]}
        nodes = list(graph.nodes())
        places = {node.node_id: place for place, node in enumerate(nodes)}
        return {
            "calls": [
                {
                    "parent": places.get(node.parent_id),
                    "is_trained": node.node_id in trained,
                    "tokens": {
                        "prompt": node.prompt_ids,
                        "output": node.sampled_ids,
                        "logprobs": node.sampled_logprobs,
                    },
                }
                for node in nodes
            ],
            "samples": [
                {
                    "ids": one["input_ids"],
                    "mask": one["loss_mask"],
                    "logprobs": one["logprobs"],
                }
                for one in sequences
            ],
        }


@asynccontextmanager
async def opened(upstream: str, program: str) -> AsyncIterator[Rollout]:
    """A session, whose id is its key."""
    app = create_app(llm_url=upstream.removesuffix("/v1"), model="m", capture_level="tokens")
    async with served(app) as url:
        await posted(f"{url}/sessions", {"session_id": _KEY})
        yield Rollout(url, app)


if __name__ == "__main__":
    host("openenv", opened)

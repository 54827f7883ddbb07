"""verifiers' interception server; run by the Python of its own environment.

    relay    requests go to the model's endpoint in the API in which they came, without tokens
    train    the train client renders prompts itself, and calls the model by token ids

The second one has a tokenizer of bytes with the special tokens of Qwen 3, and its renderer. Its
model's server is here: it takes the answers from the suite's endpoint, and writes them as tokens.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from hosting import host
from verifiers.v1.clients.client import ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.client import EvalClientConfig, TrainClientConfig
from verifiers.v1.interception.server import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask


class Rollout:
    """One trace."""

    def __init__(self, url: str, key: str, trace: Trace, engine: Any) -> None:
        self.url = url
        self.key = key
        self._trace = trace
        self._engine = engine

    async def finish(self) -> dict[str, Any]:
        """The calls that committed a node, and the branches."""
        trace = self._trace
        for _ in range(200):  # a turn whose reader went away may still be running
            if not trace.pending:
                break
            await asyncio.sleep(0.05)
        trained = {
            id(node) for branch in trace.branches if branch.trainable for node in branch.nodes
        }
        made = [call.node for call in trace.calls if call.node is not None]
        places = {node: place for place, node in enumerate(made)}
        calls = [
            {
                "parent": self._above(trace.nodes[node].parent, places),
                "is_trained": id(trace.nodes[node]) in trained,
            }
            for node in made
        ]
        said: dict[str, Any] = {"calls": calls}
        if self._engine is not None:
            said["sampled"] = self._engine.sampled
            said["samples"] = [
                {
                    "ids": branch.token_ids,
                    "mask": branch.sampled_mask,
                    "logprobs": branch.logprobs,
                }
                for branch in trace.branches
                if branch.trainable
            ]
        return said

    def _above(self, node: int | None, places: dict[int, int]) -> int | None:
        while node is not None and node not in places:
            node = self._trace.nodes[node].parent
        return None if node is None else places[node]


@asynccontextmanager
async def relayed(upstream: str, program: str) -> AsyncIterator[Rollout]:
    """A rollout whose requests are passed on as they came."""
    config = EvalClientConfig(base_url=upstream, api_key_var="COMPARE_KEY")
    async with _serving(config, None) as rollout:
        yield rollout


@asynccontextmanager
async def trained(upstream: str, program: str) -> AsyncIterator[Rollout]:
    """A rollout whose prompts the train client renders."""
    from verifiers_engine import Engine, write_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        async with Engine(upstream, Path(folder)) as engine:
            config = TrainClientConfig(
                base_url=engine.url,
                api_key_var="COMPARE_KEY",
                renderer={"name": "qwen3"},
                renderer_model_name=folder,
            )
            async with _serving(config, engine) as rollout:
                yield rollout


@asynccontextmanager
async def _serving(config: Any, engine: Any) -> AsyncIterator[Rollout]:
    trace = Trace(
        task=TraceTask(type="Task", data=TaskData(prompt="x")),
        agent=AgentInfo(config=AgentConfig()),
    )
    session = RolloutSession(ctx=ModelContext(model="m", client=config), trace=trace)
    async with InterceptionServer() as server, server.acquire(session) as (url, key, _):
        yield Rollout(url, key, trace, engine)


if __name__ == "__main__":
    assert vf
    os.environ["COMPARE_KEY"] = "none"
    host("verifiers", {"relay": relayed, "train": trained}[sys.argv[1]])

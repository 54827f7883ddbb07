"""A server that answers as vLLM's `/inference/v1/generate` does, by token ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Sample = Callable[[list[int]], Sequence[int]]
"""What is sampled behind a prompt; an exception is a fault of the server's."""


class GenerateServer:
    """Attributes: calls: the prompt and the sampled ids of each. asked: the bodies."""

    def __init__(self, sample: Sample) -> None:
        self.calls: list[tuple[list[int], list[int]]] = []
        self.asked: list[dict[str, Any]] = []
        self._sample = sample

    async def generate(self, request: web.Request) -> web.Response:
        """One answer, with a log probability that says its place."""
        body = await request.json()
        self.asked.append(body)
        try:
            ids = list(self._sample(body["token_ids"]))
        except Exception as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)
        self.calls.append((body["token_ids"], ids))
        content = [
            {"token": f"token_id:{one}", "logprob": -0.25 * (place + 1)}
            for place, one in enumerate(ids)
        ]
        choice = {
            "index": 0, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": "stop"
        }  # fmt: skip
        return web.json_response({"request_id": "r", "choices": [choice]})


@asynccontextmanager
async def generate_served(server: GenerateServer) -> AsyncIterator[str]:
    """Its base URL."""
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/inference/v1/generate", server.generate)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()

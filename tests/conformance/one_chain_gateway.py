"""A capture gateway that knows one chain: each call hangs on the one before it.

It is what a first version of a gateway looks like, and an example of an adapter. It forwards Chat
Completions to the suite's endpoint, and keeps what went by. With tokens it trains on each call in a
sample of its own, whatever the call was for.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from gymmesh_conformance.gateway import (
    CaughtCall,
    CaughtSample,
    SampledTokens,
    Script,
    scripted_endpoint,
)


@dataclass
class _Chain:
    """A rollout of such a gateway."""

    key: str = "key"
    url: str = ""
    calls: list[CaughtCall] = field(default_factory=list)

    async def finish(self) -> list[CaughtCall]:
        """The captured calls."""
        return self.calls


class _TokenChain(_Chain):
    """A rollout whose answers, which must be whole, came with tokens."""

    async def samples(self) -> list[CaughtSample]:
        """One for each call."""
        tokens = [call.tokens for call in self.calls if call.tokens is not None]
        return [
            CaughtSample(
                (*one.prompt, *one.output),
                (*(False for _ in one.prompt), *(True for _ in one.output)),
                (*(0.0 for _ in one.prompt), *one.logprobs),
            )
            for one in tokens
        ]


class OneChainGateway:
    """The adapter; `target` is not used, since it serves the gateway itself."""

    has_tokens = False

    def __init__(self, target: str = "") -> None:
        self.target = target

    @asynccontextmanager
    async def rollout(self, script: Script, program: str) -> AsyncGenerator[_Chain]:
        """Serve the gateway for one rollout."""
        chain = _TokenChain() if self.has_tokens else _Chain()
        async with scripted_endpoint(script) as upstream, aiohttp.ClientSession() as client:

            async def forward(request: web.Request) -> web.Response:
                body = await request.read()
                if self.has_tokens:
                    asked = {"return_token_ids": True, "logprobs": True}
                    body = json.dumps({**json.loads(body), **asked}).encode()
                url = f"{upstream}/chat/completions"
                async with client.post(
                    url, data=body, headers={"content-type": "application/json"}
                ) as got:
                    parent = len(chain.calls) - 1 if chain.calls else None
                    content = await got.read()
                    tokens = _tokens(content) if self.has_tokens else None
                    chain.calls.append(CaughtCall(parent=parent, is_trained=True, tokens=tokens))
                    return web.Response(body=content, content_type=got.content_type)

            application = web.Application()
            application.router.add_post("/v1/chat/completions", forward)
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            chain.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield chain
            finally:
                await runner.cleanup()


class TokenChainGateway(OneChainGateway):
    """The adapter of the one with tokens."""

    has_tokens = True


def _tokens(content: bytes) -> SampledTokens:
    answer = json.loads(content)
    (choice,) = answer["choices"]
    logprobs = tuple(one["logprob"] for one in choice["logprobs"]["content"])
    return SampledTokens(tuple(answer["prompt_token_ids"]), tuple(choice["token_ids"]), logprobs)

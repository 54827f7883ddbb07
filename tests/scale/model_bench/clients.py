"""One way of calling the model, measured.

    python -m tests.scale.model_bench.clients WAY …

    WAY CASE URL CALLS CONCURRENCY LOOP

Prints CPU microseconds (user and system) of this process per call, its set-up left out.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.service import KIND
from gymmesh_responses import params_from_json
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.loop import run
from tests.scale.model_bench.endpoint import OUTPUT_TOKENS, PROMPT_TOKENS

Call = Callable[[], Awaitable[None]]
# What each case sends (bytes of its prompt), which answer it gets, and whether with tokens.
CASES = {"1 KB": (1_000, "text"), "10 KB": (10_000, "text"), "8,000 tokens": (1_000, "tokens")}
_TIMEOUT = 60.0
_TURN = "The quick brown fox jumps over the lazy dog, then it asks what six times seven is. "


def turns(size: int) -> list[tuple[str, str]]:
    """A conversation of about `size` bytes, a kilobyte a turn, as (role, text)."""
    text = (_TURN * 13)[:1_000]
    roles = itertools.cycle(("user", "assistant"))
    said = [(next(roles), text) for _ in range(max(1, size // 1000))]
    return said if said[-1][0] == "user" else [*said[1:], ("user", text)]


@asynccontextmanager
async def bare(url: str, size: int, tokens: bool) -> AsyncIterator[Call]:
    """aiohttp and orjson with nothing around them."""
    messages = [{"role": role, "content": text} for role, text in turns(size)]
    more = {"logprobs": True, "return_token_ids": True} if tokens else {}
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-bench"}
    target = f"{url}/chat/completions"
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def call() -> None:
            body = {"model": "fake", "messages": messages, "temperature": 1.0, "max_tokens": 64}
            async with session.post(target, data=orjson.dumps(body | more)) as reply:
                answer = orjson.loads(await reply.read())
            assert answer["choices"][0]["message"]["content"]

        yield call


@asynccontextmanager
async def openai(url: str, size: int, tokens: bool) -> AsyncIterator[Call]:
    """The `openai` package's client."""
    import openai as package

    messages: Any = [{"role": role, "content": text} for role, text in turns(size)]
    more: Any = {"logprobs": True, "extra_body": {"return_token_ids": True}} if tokens else {}
    async with package.AsyncOpenAI(base_url=url, api_key="sk-bench") as client:

        async def call() -> None:
            answer = await client.chat.completions.create(
                model="fake", messages=messages, temperature=1.0, max_tokens=64, **more
            )
            assert answer.choices[0].message.content

        yield call


def service_of(backend: str) -> Callable[[str, int, bool], Any]:
    """The model service on the direct path, as an agent in its process calls it."""

    @asynccontextmanager
    async def ours(url: str, size: int, tokens: bool) -> AsyncIterator[Call]:
        config = ModelConfig(
            backend=backend,
            url=url,
            model="fake",
            api_key="sk-bench",  # type: ignore[arg-type]  # a plain text will do here
            max_concurrency=1_024,
        )
        service = ModelService(config, "policy", "policy-0")
        directory = PeerDirectory()
        await service.open(directory)
        instance = discovery_pb2.Instance(id="policy-0", service=KIND, name="policy")
        directory.add_direct(instance, service.servicers())
        peer = directory.peer(instance)
        items = [_item(role, text) for role, text in turns(size)]
        params = params_from_json({"input": items, "temperature": 1.0, "max_output_tokens": 64})
        capture = tokens_pb2.CaptureOptions(token_ids=tokens, logprobs=tokens)
        numbers = itertools.count()

        async def call() -> None:
            request = model_pb2.CreateResponseRequest(
                params=params,
                rollout_id="rollout-1",
                request_id=f"request-{next(numbers)}",
                capture=capture if tokens else None,
            )
            reply = await peer.CreateResponse(request, timeout=_TIMEOUT)
            assert reply.response.output[0].message.parts.parts[0].output_text.text
            if tokens and backend == "vllm":
                assert len(reply.tokens.prompt_token_ids) == 4 * PROMPT_TOKENS
                assert len(reply.tokens.output_token_ids) == 4 * OUTPUT_TOKENS
                assert len(reply.tokens.logprobs) == 4 * OUTPUT_TOKENS

        try:
            yield call
        finally:
            await service.close()

    return ours


def _item(role: str, text: str) -> dict[str, Any]:
    """As a task's rows have them, and as models answer."""
    if role == "user":
        return {"role": role, "content": text}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    said = {"type": "message", "id": "msg_0123456789abcdef", "role": role, "status": "completed"}
    return {**said, "content": [part]}


WAYS: dict[str, Callable[[str, int, bool], Any]] = {
    "bare": bare,
    "openai": openai,
    "chat": service_of("chat"),
    "vllm": service_of("vllm"),
}


def _cpu_us() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e6


async def measure(way: str, case: str, url: str, calls: int, concurrency: int) -> float:
    """CPU microseconds per call."""
    size, answer = CASES[case]
    async with WAYS[way](f"{url}/{answer}/v1", size, answer == "tokens") as call:

        async def work(left: Any) -> None:
            for _ in left:
                await call()

        async def round_of(count: int) -> None:
            left = iter(range(count))
            await asyncio.gather(*(work(left) for _ in range(concurrency)))

        await round_of(max(concurrency, calls // 10))  # connections, caches, imports
        before = _cpu_us()
        await round_of(calls)
        return (_cpu_us() - before) / calls


if __name__ == "__main__":
    way, case, url, calls, concurrency, loop = sys.argv[1:]
    main = measure(way, case, url, int(calls), int(concurrency))
    print(run(main) if loop == "uvloop" else asyncio.run(main))

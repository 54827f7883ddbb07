"""A small SGLang router in a thread of its own, as slime and AReaL call it.

    with Router(tokenizer) as router:
        …sample at router.address…
        assert trained_once(rows, router.calls)

Its policy counts from one to six, one word an answer, and asks nothing. Of the rollouts of a task
every second one ends with seven instead, which is wrong.
"""

from __future__ import annotations

import asyncio
import base64
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from aiohttp import web

WORDS: Final = ("one", "two", "three", "four", "five", "six")
ASKED_AGAIN: Final = "And then?"
SLOW: Final = "slowly"


@dataclass(frozen=True)
class Call:
    """What was sampled behind a prompt, and by which version of the weights."""

    prompt: list[int]
    ids: list[int]
    version: str


def logprob(token: int) -> float:
    """Of any token: a number that float32 holds exactly."""
    return -(1 + token % 5) / 8


def experts(token: int) -> list[list[int]]:
    """Those of any token, in a model of two layers with two experts per token."""
    return [[token % 7, 7 + token % 3], [token % 5, 9]]


class Router:
    """The router.

    Attributes:
        calls: those that were answered, in order.
        bodies: what came to `/generate`.
        version: of the weights.
        interrupts: how many calls to abort in the middle, for new weights. The next version samples
            the rest.
        on_interrupt: called at each of these.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.calls: list[Call] = []
        self.bodies: list[dict[str, Any]] = []
        self.version = "3"
        self.interrupts = 0
        self.on_interrupt: Callable[[], None] = lambda: None
        self.port = 0
        self._rests: dict[tuple[int, ...], list[int]] = {}
        self._begun: Counter[tuple[int, ...]] = Counter()
        self._waiting = 0
        self._loop = asyncio.new_event_loop()
        self._aborted = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def right(self) -> list[Call]:
        """The calls of rollouts that end with six."""
        texts = [self.tokenizer.decode([*one.prompt, *one.ids]) for one in self.calls]
        return [one for one, text in zip(self.calls, texts, strict=True) if "uno" not in text]

    def appends(self) -> bool:
        """Whether each prompt but a rollout's first goes on from the tokens of an earlier call."""
        earlier = {(*one.prompt, *one.ids) for one in self.calls}
        later = [
            one.prompt for one in self.calls if ASKED_AGAIN in self.tokenizer.decode(one.prompt)
        ]
        return all(
            any(tuple(prompt[:end]) in earlier for end in range(1, len(prompt))) for prompt in later
        )

    def __enter__(self) -> Router:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _open(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_get("/health", self._health)
        app.router.add_get("/workers", self._workers)
        app.router.add_get("/v1/loads", self._loads)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _workers(self, request: web.Request) -> web.Response:
        return web.json_response({"workers": [{"url": f"http://{self.address}"}]})

    async def _loads(self, request: web.Request) -> web.Response:
        return web.json_response({"loads": [{"num_reqs": self._waiting}]})

    async def _abort(self, request: web.Request) -> web.Response:
        self._aborted.set()
        return web.Response()

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        prompt: list[int] = body["input_ids"]
        text = self.tokenizer.decode(prompt)
        if SLOW in text:
            self._waiting += 1
            await self._aborted.wait()
            self._waiting -= 1
            return self._answer(prompt, [], "abort")
        ids = self._rests.pop(tuple(prompt), None) or self._sampled(prompt, text)
        most = body["sampling_params"]["max_new_tokens"]
        if self.interrupts:
            self.interrupts -= 1
            ids, rest = ids[:2], ids[2:]
            self._rests[(*prompt, *ids)] = rest
            answer = self._answer(prompt, ids, "abort")
            self.version = str(int(self.version) + 1)
            self.on_interrupt()
            return answer
        return self._answer(prompt, ids[:most], "stop" if len(ids) <= most else "length")

    def _sampled(self, prompt: list[int], text: str) -> list[int]:
        place = text.count(ASKED_AGAIN)
        word = WORDS[place]
        if place == 0:
            earlier = self._begun[tuple(prompt)]
            self._begun[tuple(prompt)] += 1
            word = "uno" if earlier % 2 else word
        elif place == len(WORDS) - 1 and "uno" in text:
            word = "seven"
        said = f"<think>\nNext is {word}.\n</think>\n\n{word}"
        encoded = self.tokenizer.encode(said, add_special_tokens=False)
        return [*encoded, self.tokenizer.eos_token_id]

    def _answer(self, prompt: list[int], ids: list[int], reason: str) -> web.Response:
        if ids:
            self.calls.append(Call(prompt, ids, self.version))
        meta = {
            "id": "call",
            "finish_reason": {"type": reason},
            "prompt_tokens": len(prompt),
            "completion_tokens": len(ids),
            "weight_version": self.version,
            "output_token_logprobs": [[logprob(one), one, None] for one in ids],
        }
        if self.bodies[-1].get("return_routed_experts"):
            read = [*prompt, *ids][:-1]
            rows = b"".join(struct.pack("<4i", *chain(*experts(one))) for one in read)
            meta["routed_experts"] = base64.b64encode(rows).decode()
        text = self.tokenizer.decode(ids)
        return web.json_response({"text": text, "output_ids": ids, "meta_info": meta})


Facts = tuple[tuple[int, ...], float, str]


def sampled(calls: Iterable[Call]) -> Counter[Facts]:
    """Each sampled token with all tokens before it, its log probability and its version."""
    found: Counter[Facts] = Counter()
    for call in calls:
        for place in range(len(call.ids)):
            until = (*call.prompt, *call.ids[: place + 1])
            found[until, logprob(until[-1]), call.version] += 1
    return found


def trained(
    tokens: Sequence[int], mask: Sequence[int], logprobs: Sequence[float], versions: Sequence[Any]
) -> Counter[Facts]:
    """The same of a row that is trained. All lists are as long as `tokens`."""
    found: Counter[Facts] = Counter()
    for place, on in enumerate(mask):
        if on:
            until = tuple(tokens[: place + 1])
            found[until, logprobs[place], str(versions[place])] += 1
    return found

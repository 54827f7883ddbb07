"""A proxy before a vLLM server: it has each answer forced to what a script says, and records what
the server read and sampled.

    async with RecordingProxy(server_url, tokenizer, script) as proxy:
        …a model at proxy.url…
    proxy.log[0].prompt, proxy.log[0].output     # token ids, as the server returned them
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import web

_LONGEST: Final = 256 << 20
# Texts are tokenised in pieces of so many characters, so that answers have tokens that the
# tokenizer would not choose: a conversation that is tokenised again differs at once.
_PIECE: Final = 5


@dataclass(frozen=True)
class AskedCall:
    """A request for an answer.

    Attributes:
        text: all that the model reads, as the server's template has it or near to it.
        last: the text of the last message.
        tools: the functions that are offered, by name, each with its schema.
    """

    text: str
    last: str
    tools: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class RecordedCall:
    """The tokens that the server read and sampled, and the text that was forced."""

    prompt: list[int]
    output: list[int]
    said: str


Script = Callable[[AskedCall], str]


class RecordingProxy:
    """See above.

    Attributes:
        log: the server's answers, in the order in which they came.
        asked: what was asked for each, in the same order.
    """

    def __init__(self, server: str, tokenizer: Any, script: Script) -> None:
        self.log: list[RecordedCall] = []
        self.asked: list[AskedCall] = []
        self._server = server.removesuffix("/v1")
        self._tokenizer = tokenizer
        self._script = script
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> RecordingProxy:
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        app = web.Application(client_max_size=_LONGEST)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _pass_on(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        asked = said = None
        # Calls of a rollout ask for their tokens; the service's own questions to the server don't.
        if body is not None and body.get("return_token_ids"):
            asked = self._asked(body)
            said = self._script(asked)
            body["vllm_xargs"] = {"forced": self._tokens(said)}
        headers = {"Authorization": request.headers.get("Authorization", "Bearer none")}
        where = f"{self._server}{request.path_qs}"
        async with self._client.request(
            request.method, where, json=body, headers=headers
        ) as response:
            content = await response.read()
            if asked is not None and said is not None and response.status == 200:
                self._record(asked, said, await response.json())
            return web.Response(
                status=response.status, body=content, content_type=response.content_type
            )

    def _record(self, asked: AskedCall, said: str, answer: Mapping[str, Any]) -> None:
        output = answer["choices"][0]["token_ids"]
        self.log.append(RecordedCall(answer["prompt_token_ids"], output, said))
        self.asked.append(asked)

    def _asked(self, body: Mapping[str, Any]) -> AskedCall:
        texts = [_text(message.get("content")) for message in body["messages"]]
        ids = (body.get("kv_transfer_params") or {}).get("prompt_token_ids")
        text = "\n".join(texts) if ids is None else self._tokenizer.decode(ids)
        functions = (tool["function"] for tool in body.get("tools") or ())
        tools = {one["name"]: one.get("parameters") or {} for one in functions}
        return AskedCall(text, texts[-1], tools)

    def _tokens(self, said: str) -> list[int]:
        pieces = [said[begin : begin + _PIECE] for begin in range(0, len(said), _PIECE)]
        encoded = [self._tokenizer.encode(piece, add_special_tokens=False) for piece in pieces]
        return [*itertools.chain(*encoded), self._tokenizer.eos_token_id]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_text(part.get("text")) for part in content)
    return content if isinstance(content, str) else ""

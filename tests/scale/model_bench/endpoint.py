"""A fake chat endpoint in a process of its own: python -m tests.scale.model_bench.endpoint.

Answers at once with the same bytes, but for the id: `/text/v1/chat/completions` a short text, and
`/tokens/v1/chat/completions` one with 8,000 token ids and logprobs, as vLLM writes it. Written on
bare sockets, so that it takes little of the machine. Prints its port; ends with standard input.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any, cast

import orjson

from gymmesh_runtime.serving.loop import run

PROMPT_TOKENS, OUTPUT_TOKENS = 256, 8_000
_USAGE = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS}
_TEXT = "Six times seven is forty-two. " * 6
_MAX_HEAD = 64 * 1024
# Stands in an answer's id for its number.
_NUMBER = "0123456789abcdef"
_NUMBERS = itertools.count()


def document(tokens: int) -> dict[str, Any]:
    """A chat answer; `tokens` output tokens are spelled out when there are any."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": _TEXT, "tool_calls": []},
        "finish_reason": "stop",
        "logprobs": None,
    }
    made = {
        "id": f"chatcmpl-{_NUMBER}",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "fake",
        "choices": [choice],
        "usage": {**_USAGE, "completion_tokens": tokens or 40},
    }
    if tokens:
        ids = [1_000 + number * 7 % 120_000 for number in range(tokens)]
        made["prompt_token_ids"] = [11 + number * 13 % 90_000 for number in range(PROMPT_TOKENS)]
        choice["token_ids"] = ids
        choice["logprobs"] = {
            "content": [
                {
                    "token": f"token_id:{one}",
                    "logprob": -(one % 9_973) / 1_303,
                    "bytes": [116, 111, 107],
                    "top_logprobs": [],
                }
                for one in ids
            ]
        }
    return made


def _answer(tokens: int) -> tuple[bytes, bytes]:
    """What stands before and after the number in its id."""
    body = orjson.dumps(document(tokens))
    head = (
        "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: fake\r\n"
        f"content-length: {len(body)}\r\ncontent-type: application/json\r\n\r\n"
    )
    before, _, after = (head.encode() + body).partition(_NUMBER.encode())
    return before, after


# What else is asked for (a server's metrics, what it can do) is not there.
_NOTHING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
_CHAT = b"/v1/chat/completions"
ANSWERS = {b"/text": _answer(0), b"/tokens": _answer(OUTPUT_TOKENS)}


class Endpoint(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._wanted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        while True:
            if not self._wanted:
                end = self._held.find(b"\r\n\r\n")
                if end < 0:
                    assert len(self._held) < _MAX_HEAD
                    return
                head = bytes(self._held[:end]).lower()
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                self._wanted = end + 4 + int(length or 0)
                path = head.split(b" ", 2)[1]
                self._answer = ANSWERS.get(path.removesuffix(_CHAT))
            if len(self._held) < self._wanted:
                return
            del self._held[: self._wanted]
            self._wanted = 0
            if self._answer is None:
                self._transport.write(_NOTHING)
            else:
                before, after = self._answer
                self._transport.writelines((before, b"%016d" % next(_NUMBERS), after))


async def main() -> None:
    """Serves until standard input ends."""
    server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    run(main())

"""The scripted model server, in a process of its own: python -m tests.scale.gateway_bench.endpoint.

Speaks Chat Completions and Messages, whole and streamed, and answers each request with a text and
a tool call; and Responses, by the script in the prompt (tests/programs/scripted_policy.py). Prints
its port. A line of standard input sets how long later answers take: seconds, or `hold`, until the
next line. Each line is answered with the number of calls that wait. Ends when its input does.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from typing import Any, Final

import orjson
from aiohttp import web

from gymmesh_runtime.serving.loop import run
from tests.programs.scripted_policy import items_of, next_item
from tests.scale.gateway_bench.speech import ARGUMENTS, TEXT

_NUMBERS: Final = itertools.count(1)
_NUMBER: Final = b"NUMBER"  # stands in ids for their number
_USAGE: Final = {"prompt_tokens": 2400, "completion_tokens": 120, "total_tokens": 2520}
_MESSAGES_USAGE: Final = {"input_tokens": 2400, "output_tokens": 120}


def _chat(choice: dict[str, Any], kind: str) -> dict[str, Any]:
    about = {"id": "chatcmpl-NUMBER", "object": kind, "created": 1, "model": "scripted"}
    return {**about, "choices": [{"index": 0, "logprobs": None, **choice}]}


def _chat_call() -> dict[str, Any]:
    function = {"name": "shell", "arguments": ARGUMENTS}
    return {"id": "call_NUMBER", "type": "function", "function": function}


def _whole_chat() -> bytes:
    message = {"role": "assistant", "content": TEXT, "tool_calls": [_chat_call()]}
    choice = {"message": message, "finish_reason": "tool_calls"}
    return orjson.dumps(_chat(choice, "chat.completion") | {"usage": _USAGE})


def _streamed_chat() -> bytes:
    half = len(TEXT) // 2
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": TEXT[:half]}]
    deltas += [{"content": TEXT[half:]}, {"tool_calls": [{"index": 0, **_chat_call()}]}]
    said: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None} for delta in deltas]
    said.append({"delta": {}, "finish_reason": "tool_calls"})
    events = [_chat(choice, "chat.completion.chunk") for choice in said]
    events.append({**events[-1], "choices": [], "usage": _USAGE})
    return b"".join(b"data: %s\n\n" % orjson.dumps(one) for one in events) + b"data: [DONE]\n\n"


def _message(content: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
    about = {"id": "msg_NUMBER", "type": "message", "role": "assistant", "model": "scripted"}
    ended = {"stop_reason": stop, "stop_sequence": None, "usage": _MESSAGES_USAGE}
    return {**about, "content": content, **ended}


def _tool_use(given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_NUMBER", "name": "shell", "input": given}


def _whole_messages() -> bytes:
    content = [{"type": "text", "text": TEXT}, _tool_use(orjson.loads(ARGUMENTS))]
    return orjson.dumps(_message(content, "tool_use"))


def _streamed_messages() -> bytes:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": _message([], None)}]
    blocks = [
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": TEXT}),
        (_tool_use({}), {"type": "input_json_delta", "partial_json": ARGUMENTS}),
    ]
    for index, (block, delta) in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": _MESSAGES_USAGE})
    events.append({"type": "message_stop"})
    lines = [b"event: %s\ndata: %s\n\n" % (one["type"].encode(), orjson.dumps(one))
             for one in events]  # fmt: skip
    return b"".join(lines)


_ANSWERS: Final = {
    ("/v1/chat/completions", False): _whole_chat(),
    ("/v1/chat/completions", True): _streamed_chat(),
    ("/v1/messages", False): _whole_messages(),
    ("/v1/messages", True): _streamed_messages(),
}


class Endpoint:
    """Answers after `latency_s`; None: when that is set again."""

    def __init__(self) -> None:
        self.waiting = 0
        self._latency_s: float | None = 0.0
        self._changed = asyncio.Event()

    def set_latency(self, seconds: float | None) -> None:
        """Of later calls, and of those that wait because there was none."""
        self._latency_s = seconds
        self._changed.set()
        self._changed = asyncio.Event()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """One call."""
        if request.method != "POST":
            return web.Response(status=404)
        body = orjson.loads(await request.read())
        self.waiting += 1
        try:
            if self._latency_s is None:
                await self._changed.wait()
            elif self._latency_s:
                await asyncio.sleep(self._latency_s)
        finally:
            self.waiting -= 1
        if request.path == "/v1/responses":
            return web.Response(body=_scripted(body), content_type="application/json")
        stream = bool(body.get("stream"))
        answer = _ANSWERS[request.path, stream].replace(_NUMBER, b"%08d" % next(_NUMBERS))
        kind = "text/event-stream" if stream else "application/json"
        return web.Response(body=answer, content_type=kind)


def _scripted(body: dict[str, Any]) -> bytes:
    """A Responses answer: what the script in the prompt says next."""
    output = [next_item(items_of(body.get("input")), body.get("tools") or [])]
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    about = {"id": f"resp_{next(_NUMBERS)}", "object": "response", "created_at": 1}
    ended = {"status": "completed", "model": "scripted", "usage": usage}
    return orjson.dumps({**about, **ended, "output": output})


async def main() -> None:
    """Serves until standard input ends."""
    endpoint = Endpoint()
    server = web.Server(endpoint.serve, access_log=None)
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(server, "127.0.0.1", 0, backlog=4096)
    print(listening.sockets[0].getsockname()[1], flush=True)
    gc.disable()  # a pause of it would be in the model's time
    while line := await asyncio.to_thread(sys.stdin.readline):
        if words := line.split():
            endpoint.set_latency(None if words[0] == "hold" else float(words[0]))
        print(endpoint.waiting, flush=True)
    listening.close()
    await server.shutdown(1.0)


if __name__ == "__main__":
    run(main())

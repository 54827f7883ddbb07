"""A small endpoint of NeMo RL, with the toy tokenizer: what it asserts, and how it keeps tokens.

It has the checks of NeMo RL's own: `temperature` and `top_p` are the trainer's, there is no
`top_k`, and `logprobs` come with `top_logprobs`. The tokens of an answer are in its message.
Where the last answer is sent back with its tokens, they replace the template's rendering.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.vllm_server import END, Reply, Template, encode, letters, logprob, render, says

Json = dict[str, Any]


@dataclass
class NemoServer:
    """The server.

    temperature, top_p: the trainer's. template, splits, script, default: as of `FakeVllm`. keeps:
    whether it goes on from known tokens. alter: changes answers. bodies, prompts, outputs: by call.
    """

    temperature: float = 0.7
    top_p: float = 0.9
    template: Template = "keeps"
    splits: bool = False
    keeps: bool = True
    context: int = 100_000
    script: list[Reply] = field(default_factory=list)
    default: Reply = field(default_factory=lambda: says("ok"))
    alter: Callable[[Json], Json] = lambda answer: answer
    bodies: list[Json] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> NemoServer:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        # There they are assertions, so a status of 500.
        sampling = (body.get("temperature"), body.get("top_p"))
        if sampling != (self.temperature, self.top_p) or body.get("top_k") not in (None, -1):
            return web.Response(status=500, text="Internal Server Error")
        if body.get("logprobs") and body.get("top_logprobs") is None:
            return _failed("`top_logprobs` must be set when requesting token information")
        prompt = self._prompt(body)
        if len(prompt) >= self.context:
            return _failed(
                f"Prompt length ({len(prompt)}) fills or exceeds max_model_len ({self.context}). "
                "No room for output tokens."
            )
        reply = self.script.pop(0) if self.script else self.default
        output = letters(reply.written) if self.splits else encode(reply.written)
        output = output if reply.cut else [*output, END]
        self.prompts.append(prompt)
        self.outputs.append(output)
        message: Json = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": f"call-{len(self.prompts)}",
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for name, arguments in reply.calls
            ]
        if body.get("logprobs"):
            message["prompt_token_ids"] = prompt
            message["generation_token_ids"] = output
            message["generation_log_probs"] = [logprob(one) for one in output]
        finish = "length" if reply.cut else "tool_calls" if reply.calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        answer = {"id": "chatcmpl-1", "model": body.get("model", "toy"), "choices": [choice]}
        return web.json_response(self.alter(answer))

    def _prompt(self, body: Json) -> list[int]:
        messages = body["messages"]
        whole = self._rendered(body, messages, generation=True)
        known = [one for one in messages if "prompt_token_ids" in one]
        if not known or not self.keeps:
            return whole
        told = known[-1]["prompt_token_ids"] + known[-1]["generation_token_ids"]
        answers = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
        until = self._rendered(body, messages[: answers[-1] + 1], generation=False)
        cut = [place for place, one in enumerate(whole) if one == END][until.count(END) - 1]
        kept: list[int] = told[:-1] if told[-1] == END else told
        return kept + whole[cut:]

    def _rendered(self, body: Json, messages: list[Json], *, generation: bool) -> list[int]:
        return encode(render(messages, body.get("tools"), self.template, generation=generation))


def _failed(message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "code": 400}
    return web.json_response({"error": error}, status=400)

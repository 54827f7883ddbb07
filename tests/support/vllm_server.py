"""A small vLLM: a toy tokenizer, a toy chat template and a scripted model behind vLLM's HTTP API.

    async with FakeVllm(template="drops") as server:
        server.script = [says("hello", reasoning="hm"), calls("add", '{"a":  1}')]
        …ModelConfig(backend="vllm", url=server.url)…
        assert server.prompts[-1][: len(before)] == before

It serves `POST /v1/chat/completions`, `/v1/chat/completions/render`, `/tokenize`, `/detokenize`,
`/v1/completions` (to score a prompt's tokens) and `GET /weight_info`, as vLLM 0.32 answers them, as
far as the backend reads them. Tool calls are parsed and written anew (`arguments` are other bytes
than the model wrote), as its parsers do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from tests.support.experts import of_vllm

Json = dict[str, Any]

# As vLLM does, each answer gets an id of its own.
_NUMBERS = itertools.count(1)
# Of one token, where only the first may be drawn: as each mode gives them.
_HIGHEST = {
    "processed_logprobs": (0.0, -9999.0),
    "raw_logprobs": (-0.75, -1.5),
    "raw_logits": (7.5, 3.25),
}
Template = Literal["keeps", "drops", "drops_old", "late_end", "dated"]

START, END = 1, 2
_SPECIAL = {START: "<|im_start|>", END: "<|im_end|>"}
_LETTER, _PAIR = 16, 2_000_000
_CONTEXT_WORDS = "This model's maximum context length is {} tokens. However, you sent {}."


def encode(text: str) -> list[int]:
    """Text as tokens: specials, pairs of small letters, and single characters."""
    ids: list[int] = []
    place = 0
    while place < len(text):
        for token, special in _SPECIAL.items():
            if text.startswith(special, place):
                ids.append(token)
                place += len(special)
                break
        else:
            pair = text[place : place + 2]
            if len(pair) == 2 and pair.isascii() and pair.isalpha() and pair.islower():
                ids.append(_PAIR + (ord(pair[0]) - 97) * 26 + ord(pair[1]) - 97)
                place += 2
            else:
                ids.append(_LETTER + ord(text[place]))
                place += 1
    return ids


def letters(text: str) -> list[int]:
    """Text as tokens that the tokenizer itself would not choose: no pairs."""
    return [_LETTER + ord(letter) for letter in text]


def decode(ids: Sequence[int]) -> str:
    """Tokens as text."""
    return "".join(map(_word, ids))


def _word(token: int) -> str:
    if token in _SPECIAL:
        return _SPECIAL[token]
    if token >= _PAIR:
        first, second = divmod(token - _PAIR, 26)
        return chr(97 + first) + chr(97 + second)
    return chr(token - _LETTER)


def render(
    messages: Sequence[Json],
    tools: Sequence[Json] | None,
    template: Template = "keeps",
    *,
    generation: bool,
    leaves_open: bool = False,
    turn: int = 0,
) -> str:
    """The chat template.

    keeps: shows everything. drops: no reasoning of any answer. drops_old: of the answers before
    the last question. late_end: ends an answer only where something follows. dated: puts the
    number of calls so far at the very top.
    """
    said = [f"<|im_start|>call {turn}<|im_end|>\n"] if template == "dated" else []
    if tools:
        said.append(f"<|im_start|>tools\n{json.dumps(list(tools))}<|im_end|>\n")
    asked = max((i for i, one in enumerate(messages) if one["role"] == "user"), default=-1)
    for place, message in enumerate(messages):
        last = place == len(messages) - 1
        body = message.get("content") or ""
        if isinstance(body, list):
            body = "".join(part.get("text", "<image>") for part in body)
        if message["role"] == "assistant":
            shows = template != "drops" and not (template == "drops_old" and place < asked)
            body = _answer(message, body, reasoning=shows)
        end = "" if last and leaves_open else "<|im_end|>\n"
        if template == "late_end" and last and not generation and message["role"] == "assistant":
            end = ""
        said.append(f"<|im_start|>{message['role']}\n{body}{end}")
    if generation:
        said.append("<|im_start|>assistant\n")
    return "".join(said)


def _answer(message: Json, body: str, *, reasoning: bool) -> str:
    thought = message.get("reasoning_content") or message.get("reasoning")
    head = f"<think>{thought}</think>" if thought and reasoning else ""
    tools = "".join(
        "<tool_call>"
        + json.dumps(
            {
                "name": call["function"]["name"],
                "arguments": json.loads(call["function"]["arguments"] or "{}"),
            }
        )
        + "</tool_call>"
        for call in message.get("tool_calls") or []
    )
    return head + body + tools


@dataclass(frozen=True)
class Reply:
    """What the model writes. cut: by the token limit, so without its stop token."""

    text: str
    reasoning: str | None = None
    calls: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    hangs_after: int | None = None

    @property
    def written(self) -> str:
        thought = f"<think>{self.reasoning}</think>" if self.reasoning else ""
        tools = "".join(
            f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
            for name, arguments in self.calls
        )
        return thought + self.text + tools


def says(text: str, **more: Any) -> Reply:
    """An answer of text."""
    return Reply(text, **more)


def calls(name: str, arguments: str, text: str = "", **more: Any) -> Reply:
    """An answer that calls a tool, its arguments as the model writes them."""
    return Reply(text, calls=((name, arguments),), **more)


@dataclass
class FakeVllm:
    """The server.

    template: see `render`. splits: whether the model writes tokens that the tokenizer would not
    choose. token_in: whether it takes a prompt of tokens. ignores: says that it does, but does
    not. scale_out: whether it renders chats, and ends calls. tokenizes: whether it has /tokenize.
    context: tokens. experts: whether it runs with `--enable-return-routed-experts`. script: the
    answers, in order; then `default`. weights: what /weight_info
    says; None: 404. metrics: what /metrics says; empty: 404. logprobs_mode: vLLM's; empty: the two
    highest of a token are not given. fails: statuses with which it first answers what it is to
    score.
    """

    template: Template = "keeps"
    splits: bool = False
    token_in: bool = True
    ignores: bool = False
    scale_out: bool = False
    tokenizes: bool = True
    returns_ids: bool = True
    context: int = 100_000
    experts: bool = False
    weights: str | None = None
    metrics: str = ""
    logprobs_mode: str = ""
    fails: list[int] = field(default_factory=list)
    script: list[Reply] = field(default_factory=list)
    default: Reply = field(default_factory=lambda: says("ok"))
    alter: Callable[[Json], Json] = lambda answer: answer
    requests: list[tuple[str, Json]] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    running: dict[str, asyncio.Event] = field(default_factory=dict)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def renderings(self) -> int:
        """How many conversations it was asked to render, the probe's aside."""
        paths = [path for path, body in self.requests if not is_probe(body)]
        return sum(path in ("tokenize", "render") for path in paths)

    async def __aenter__(self) -> FakeVllm:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/chat/completions/render", self._render)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        app.router.add_post("/v1/completions", self._score)
        app.router.add_post("/inference/v1/abort_requests", self._abort)
        app.router.add_get("/weight_info", self._weight_info)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not self.tokenizes:
            return refusal(404, "Not Found")
        if "prompt" in body:
            assert body["add_special_tokens"] is False
            ids = encode(body["prompt"])
            return web.json_response({"tokens": ids, "count": len(ids)})
        self.requests.append(("tokenize", body))
        for message in body["messages"]:
            # Here the other name is not known.
            message.pop("reasoning_content", None)
        return self._rendered(body, "tokens")

    async def _detokenize(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"prompt": decode((await request.json())["tokens"])})

    async def _score(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(("score", body))
        if self.fails:
            return refusal(self.fails.pop(0), "not now")
        prompt = body["prompt"]
        if len(prompt) >= self.context:
            return refusal(400, _CONTEXT_WORDS.format(self.context, len(prompt)))
        return web.json_response(self.alter(scored_completion(prompt)))

    async def _render(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not self.scale_out:
            return refusal(403, "Scale-out endpoints are disabled.")
        self.requests.append(("render", body))
        return self._rendered(body, "token_ids")

    def _rendered(self, body: Json, key: str) -> web.Response:
        leaves_open = body.get("continue_final_message", False)
        generation = body.get("add_generation_prompt", True)
        if leaves_open and generation:
            return refusal(400, "cannot set both")
        ids = self._ids(body, generation=generation, leaves_open=leaves_open)
        return web.json_response({key: ids, "count": len(ids), "max_model_len": self.context})

    async def _weight_info(self, request: web.Request) -> web.StreamResponse:
        if self.weights is None:
            return refusal(404, "Not Found")
        return web.json_response({"weight_version": self.weights})

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self.metrics) if self.metrics else refusal(404, "Not Found")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        given = (body.get("kv_transfer_params") or {}).get("prompt_token_ids")
        if given == [-1] and (self.token_in or self.ignores):
            return refusal(
                400, "`kv_transfer_params['prompt_token_ids']` must be non-negative integers."
            )
        if is_probe(body):
            return web.json_response(self._probed(body))
        self.requests.append(("chat", body))
        has_media = any(isinstance(one.get("content"), list) for one in body["messages"])
        if given is None or not self.token_in or has_media:
            given = self._ids(body, generation=True)
        if len(given) > self.context:
            return refusal(400, _CONTEXT_WORDS.format(self.context, len(given)))
        reply = self.script.pop(0) if self.script else self.default
        output = letters(reply.written) if self.splits else encode(reply.written)
        output = output if reply.cut else [*output, END]
        self.prompts.append(given)
        self.outputs.append(output)
        document = _document(body, reply, given, output)
        if self.experts and not body.get("stream"):
            document = of_vllm(document, body, given, output)
        document = self.alter(document)
        if not body.get("return_token_ids") or not self.returns_ids:
            document.pop("prompt_token_ids")
            document["choices"][0].pop("token_ids")
        if body.get("stream"):
            return await self._stream(request, body, reply, document, output)
        if reply.hangs_after is not None:
            self.hanging.set()
            stopped = self.running.setdefault(f"chatcmpl-{body.get('request_id')}", asyncio.Event())
            await stopped.wait()
            choice = document["choices"][0]
            choice["token_ids"] = output[: reply.hangs_after]
            choice["message"]["content"] = decode(output[: reply.hangs_after])
            choice["finish_reason"] = "abort"
            if choice.get("logprobs"):
                del choice["logprobs"]["content"][reply.hangs_after :]
        return web.json_response(document)

    def _probed(self, body: Json) -> Json:
        document = _document(body, says("hi"), [], [])
        highest = _HIGHEST.get(self.logprobs_mode)
        if body.get("top_logprobs") and body.get("top_k") == 1 and highest is not None:
            entry = {"top_logprobs": [{"logprob": one} for one in highest]}
            document["choices"][0]["logprobs"] = {"content": [entry]}
        return document

    async def _abort(self, request: web.Request) -> web.StreamResponse:
        if not self.scale_out:
            return refusal(403, "Scale-out endpoints are disabled.")
        for one in (await request.json())["request_ids"]:
            if one in self.running:
                self.running[one].set()
        return web.Response()

    def _ids(self, body: Json, *, generation: bool, leaves_open: bool = False) -> list[int]:
        text = render(
            body["messages"],
            body.get("tools"),
            self.template,
            generation=generation,
            leaves_open=leaves_open,
            turn=len(self.prompts),
        )
        return encode(text)

    async def _stream(
        self, request: web.Request, body: Json, reply: Reply, document: Json, output: list[int]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        choice, head = document["choices"][0], {"id": document["id"], "model": document["model"]}
        logprobs = (choice.get("logprobs") or {}).get("content")
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}}
        ids = {"prompt_token_ids": document["prompt_token_ids"]} if "token_ids" in choice else {}
        await _event(response, {**head, **ids, "choices": [first]})
        for place, token in enumerate(output):
            if place == reply.hangs_after:
                self.hanging.set()
                await asyncio.Event().wait()
            last = place == len(output) - 1
            delta: Json = {}
            if not reply.calls and not reply.reasoning:
                delta = {"content": decode([token])} if token != END else {}
            elif last:
                message = choice["message"]
                delta = {"content": message["content"], "tool_calls": message.get("tool_calls")}
                delta |= {"reasoning": message.get("reasoning")}
            chunk: Json = {"index": 0, "delta": delta}
            if "token_ids" in choice:
                chunk["token_ids"] = [token]
            if logprobs:
                chunk["logprobs"] = {"content": [logprobs[place]]}
            if last:
                chunk["finish_reason"] = choice["finish_reason"]
            await _event(response, {**head, "choices": [chunk]})
        await _event(response, {**head, "choices": [], "usage": document["usage"]})
        await response.write(b"data: [DONE]\n\n")
        return response


def logprob(token: int) -> float:
    """What the model gives for a sampled token; exact as a float32."""
    return -(token % 64) / 16


def most_probable(token: int) -> int:
    """The token that the model would write in place of one: itself, or another if it is odd."""
    return token if token % 2 == 0 else token - token % 64


def scored_completion(prompt: Sequence[int]) -> Json:
    """vLLM's completion with the log probability of each of the prompt's tokens but the first."""
    entries = [
        {
            str(one): {"logprob": logprob(one), "rank": 1, "decoded_token": "x"}
            for one in (token, most_probable(token))
        }
        for token in prompt[1:]
    ]
    choice = {"index": 0, "text": "x", "prompt_logprobs": [None, *entries]}
    return {"id": "cmpl-2", "object": "text_completion", "model": "toy", "choices": [choice]}


def is_probe(body: Json) -> bool:
    """Whether a backend asks only to learn what the server does."""
    return bool(body["messages"] == [{"role": "user", "content": "hello"}])


def _document(body: Json, reply: Reply, prompt: list[int], output: list[int]) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None}
    message["reasoning"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": f"call-{len(prompt)}-{place}",
                "type": "function",
                # As a parser writes it, not as the model did.
                "function": {"name": name, "arguments": json.dumps(json.loads(arguments))},
            }
            for place, (name, arguments) in enumerate(reply.calls)
        ]
    finish = "length" if reply.cut else "tool_calls" if reply.calls else "stop"
    choice: Json = {"index": 0, "message": message, "finish_reason": finish, "token_ids": output}
    if body.get("logprobs"):
        entries = [{"token": decode([one]), "logprob": logprob(one)} for one in output]
        choice["logprobs"] = {"content": entries}
    return {
        "id": f"chatcmpl-{next(_NUMBERS)}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body.get("model", "toy"),
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(output),
            "total_tokens": len(prompt) + len(output),
        },
        "prompt_token_ids": prompt,
    }


async def _event(response: web.StreamResponse, chunk: Json) -> None:
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def refusal(status: int, message: str) -> web.Response:
    """An error as vLLM answers it."""
    kind = "BadRequestError"
    return web.json_response(
        {"error": {"message": message, "type": kind, "code": status}}, status=status
    )

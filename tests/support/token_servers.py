"""A small vLLM and a small SGLang that are called by token ids, with the toy tokenizer.

    async with TokenServer("vllm", script=[says("hello")]) as server:
        …VllmEngine(server.url)…
        assert server.prompts[-1][: len(before)] == before

They sample, and score the tokens of a prompt. They serve `POST /v1/completions` and
`/inference/v1/generate` as vLLM answers them, or `POST /generate` and `/abort_request` as SGLang
does, as far as the engines read them.
`toy_tokenizer` is the tokenizer of both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from tests.support.experts import of_sglang, of_vllm
from tests.support.vllm_server import (
    END,
    Reply,
    Template,
    decode,
    encode,
    letters,
    logprob,
    most_probable,
    refusal,
    render,
    says,
    scored_completion,
)

Json = dict[str, Any]
Kind = Literal["vllm", "sglang"]


class ToyTokenizer:
    """The tokenizer and chat template of `tests.support.vllm_server`, as transformers has them."""

    eos_token_id = END
    chat_template = "toy"

    def __init__(self, template: Template = "keeps") -> None:
        self._template = template

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        return decode(token_ids)

    def encode(self, text: str, **options: Any) -> list[int]:
        assert options == {"add_special_tokens": False}
        return encode(text)

    def apply_chat_template(self, conversation: list[Json], **options: Any) -> list[int]:
        written = [self._written(message) for message in conversation]
        text = render(
            written,
            options.get("tools"),
            self._template,
            generation=options["add_generation_prompt"],
            leaves_open=options["continue_final_message"],
        )
        return encode(text)

    @staticmethod
    def _written(message: Json) -> Json:
        """A message with its calls' arguments as text, as that template reads them."""
        made = dict(message)
        if made.get("tool_calls"):
            functions = [dict(call["function"]) for call in made["tool_calls"]]
            for function in functions:
                if not isinstance(function["arguments"], str):
                    function["arguments"] = json.dumps(function["arguments"])
            made["tool_calls"] = [{"function": function} for function in functions]
        return made


def toy_tokenizer() -> ToyTokenizer:
    """For configurations: `tests.support.token_servers:toy_tokenizer`."""
    return ToyTokenizer()


def toy_tokenizer_that_drops() -> ToyTokenizer:
    """The same with a template that drops earlier reasoning."""
    return ToyTokenizer("drops")


@dataclass
class TokenServer:
    """The server.

    kind: whose API it has. splits: whether the model writes tokens that the tokenizer would not
    choose. script: the answers, in order; then `default`. context: in tokens. version: of the
    weights, by which the answers are sampled; empty: not said. spans: further ones, in the midst of
    an answer. experts: whether it runs with `--enable-return-routed-experts`. mode: vLLM's
    `--logprobs-mode`. says_context: whether `/v1/models` works; asked: how
    often it was called. check: refuses a body with a sentence. alter: changes answers. fails:
    statuses to answer first. barrier: where calls wait until all of its parties are
    here. prompts, outputs: token ids, by call. aborted: the ids of requests that were.
    """

    kind: Kind = "vllm"
    splits: bool = False
    script: list[Reply] = field(default_factory=list)
    default: Reply = field(default_factory=lambda: says("ok"))
    context: int = 100_000
    version: str = ""
    spans: list[Json] = field(default_factory=list)
    check: Callable[[Json], str | None] = lambda body: None
    alter: Callable[[Json], Json] = lambda answer: answer
    experts: bool = False
    mode: str = "raw_logprobs"
    says_context: bool = True
    asked: int = 0
    fails: list[int] = field(default_factory=list)
    barrier: asyncio.Barrier | None = None
    bodies: list[Json] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    abort_came: asyncio.Event = field(default_factory=asyncio.Event)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def url(self) -> str:
        base = f"http://127.0.0.1:{self.port}"
        return f"{base}/v1" if self.kind == "vllm" else base

    async def __aenter__(self) -> TokenServer:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        if self.kind == "vllm":
            app.router.add_post("/v1/completions", self._sample)
            app.router.add_post("/inference/v1/generate", self._sample)
        else:
            app.router.add_post("/generate", self._sample)
            app.router.add_post("/abort_request", self._abort)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        self.asked += 1
        if not self.says_context:
            return refusal(503, "not now")
        return web.json_response({"data": [{"id": "toy", "max_model_len": self.context}]})

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json())["rid"])
        self.abort_came.set()
        return web.Response()

    async def _sample(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("prompt") == [0]:
            return web.json_response(self._probed())
        if body.get("token_ids") == [0]:
            return web.json_response(self._probed_generate())
        self.bodies.append(body)
        if self.fails:
            return refusal(self.fails.pop(0), "not now")
        if problem := self.check(body):
            return refusal(400, problem)
        if self.barrier is not None:
            await self.barrier.wait()
        [prompt] = [body[key] for key in ("prompt", "input_ids", "token_ids") if key in body]
        if len(prompt) >= self.context:
            said = f"This model's maximum context length is {self.context} tokens."
            return refusal(400, said)
        if "prompt_logprobs" in body or "logprob_start_len" in body:
            self.prompts.append(prompt)
            return web.json_response(self.alter(self._scored(body, prompt)))
        reply = self.script.pop(0) if self.script else self.default
        if reply.hangs_after is not None:
            self.hanging.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        ids = letters(reply.written) if self.splits else encode(reply.written)
        ids = ids if reply.cut else [*ids, END]
        self.prompts.append(prompt)
        self.outputs.append(ids)
        made = self._vllm if self.kind == "vllm" else self._sglang
        made = self._generated if "token_ids" in body else made
        answer = made(body, reply, prompt, ids)
        if self.experts:
            given = of_vllm if self.kind == "vllm" else of_sglang
            answer = given(answer, body, prompt, ids)
        return web.json_response(self.alter(answer))

    def _probed(self) -> Json:
        """One token that alone could be drawn, and the next one."""
        first, second = (0.0, -9999.0) if self.mode == "processed_logprobs" else (-0.5, -1.5)
        top = [{"token_id:5": first, "token_id:6": second}]
        return {"choices": [{"finish_reason": "length", "logprobs": {"top_logprobs": top}}]}

    def _scored(self, body: Json, prompt: list[int]) -> Json:
        if self.kind == "vllm":
            return scored_completion(prompt)
        start = body["logprob_start_len"]
        own = [[logprob(one), one, None] for one in prompt[start:]]
        top = [[[logprob(best), best, None]] for best in map(most_probable, prompt[start:])]
        meta = {
            "id": body["rid"],
            "finish_reason": {"type": "length", "length": 1},
            "prompt_tokens": len(prompt),
            "input_token_logprobs": [[None, prompt[start], None], *own[1:]],
            "input_top_logprobs": [None, *top[1:]],
        }
        return {"text": "x", "output_ids": [1], "meta_info": meta}

    def _probed_generate(self) -> Json:
        """The same from vLLM's generate."""
        [top] = self._probed()["choices"][0]["logprobs"]["top_logprobs"]
        entries = [
            {"token_id": int(name.partition(":")[2]), "logprob": value}
            for name, value in top.items()
        ]
        content = [{**entries[0], "top_logprobs": entries}]
        return {"choices": [{"finish_reason": "length", "logprobs": {"content": content}}]}

    def _generated(self, body: Json, reply: Reply, prompt: list[int], ids: list[int]) -> Json:
        choice: Json = {
            "index": 0,
            "finish_reason": "length" if reply.cut else "stop",
            "token_ids": ids,
            "logprobs": None,
            "weight_versions": self.spans or None,
        }
        if body["sampling_params"].get("logprobs") is not None:
            content = [{"token_id": one, "logprob": logprob(one)} for one in ids]
            choice["logprobs"] = {"content": content}
        return {"request_id": body["request_id"], "choices": [choice]}

    def _vllm(self, body: Json, reply: Reply, prompt: list[int], ids: list[int]) -> Json:
        choice: Json = {
            "index": 0,
            "text": reply.written,
            "finish_reason": "length" if reply.cut else "stop",
            "stop_reason": None,
            "logprobs": None,
        }
        if body.get("return_token_ids"):
            choice |= {"token_ids": ids, "prompt_token_ids": prompt}
        if body.get("logprobs") is not None:
            named = body.get("return_tokens_as_token_ids")
            choice["logprobs"] = {
                "tokens": [f"token_id:{one}" if named else decode([one]) for one in ids],
                "token_logprobs": [logprob(one) for one in ids],
            }
        if self.spans:
            choice["weight_versions"] = self.spans
        return {"id": "cmpl-1", "object": "text_completion", "model": "toy", "choices": [choice]}

    def _sglang(self, body: Json, reply: Reply, prompt: list[int], ids: list[int]) -> Json:
        end: Json = {"type": "stop", "matched": END}
        if reply.cut:
            end = {"type": "length", "length": len(ids)}
        meta: Json = {
            "id": body["rid"],
            "finish_reason": end,
            "prompt_tokens": len(prompt),
            "completion_tokens": len(ids),
            "weight_version": self.version or "default",
        }
        if self.spans:
            meta["weight_versions"] = self.spans
        if body.get("return_logprob"):
            meta["output_token_logprobs"] = [[logprob(one), one, None] for one in ids]
        return {"text": reply.written, "output_ids": ids, "meta_info": meta}

"""A model that is called by token ids, for verifiers' train client: `/inference/v1/generate`.

It takes its answers from the suite's endpoint and writes them as Qwen 3 does.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of single bytes, with the special tokens of Qwen 3."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, normalized=False) for one in SPECIAL])
    tokenizer.add_tokens([AddedToken(one, normalized=False) for one in MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


class Engine:
    """The server, as long as its block lasts; `sampled` is what it read and wrote."""

    def __init__(self, upstream: str, folder: Path) -> None:
        self.url = ""
        self.sampled: list[dict[str, Any]] = []
        self._upstream = upstream
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    async def __aenter__(self) -> Engine:
        self._client = aiohttp.ClientSession()
        application = web.Application(client_max_size=64_000_000)
        application.router.add_post("/inference/v1/generate", self._generate)
        application.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def _generate(self, request: web.Request) -> web.Response:
        prompt = (await request.json())["token_ids"]
        asked = {"model": "m", "messages": [{"role": "user", "content": "next"}]}
        async with self._client.post(f"{self._upstream}/chat/completions", json=asked) as got:
            message = (await got.json())["choices"][0]["message"]
        output = self._tokenizer.encode(written(message), add_special_tokens=False).ids
        logprobs = [-(len(self.sampled) + 1) / 16 - (one % 16) / 256 for one in output]
        self.sampled.append({"prompt": prompt, "output": output, "logprobs": logprobs})
        entries = [
            {"token": f"token_id:{token}", "logprob": logprob}
            for token, logprob in zip(output, logprobs, strict=True)
        ]
        choice = {"index": 0, "token_ids": output, "finish_reason": "stop"}
        choice["logprobs"] = {"content": entries}
        return web.json_response({"request_id": f"r{len(self.sampled)}", "choices": [choice]})


def written(message: dict[str, Any]) -> str:
    """An answer as Qwen 3 writes it, with its end."""
    text = message.get("content") or ""
    if thought := message.get("reasoning_content"):
        text = f"<think>\n{thought}\n</think>\n\n{text}"
    for call in message.get("tool_calls") or ():
        function = call["function"]
        head = "\n" if text and not text.endswith("\n") else ""
        said = f'{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}'
        text += f"{head}<tool_call>\n{said}\n</tool_call>"
    return f"{text}<|im_end|>"

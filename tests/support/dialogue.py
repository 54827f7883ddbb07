"""A caller of a model service that goes on with a conversation, and checks the exact-token law."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh_model import ModelService
from gymmesh_responses import items_to_list, params_from_json
from gymmesh_runtime.context import CallContext

Json = dict[str, Any]
BOUND_S = 120.0


def ids_of(packed: bytes) -> list[int]:
    """Token ids as a list."""
    return [one[0] for one in struct.iter_unpack("<i", packed)]


class Dialogue:
    """One conversation. `prompts` and `outputs` are the whole tokens of each call."""

    def __init__(self, service: ModelService, **params: Any) -> None:
        self.service = service
        self.params = params
        self.items: list[Any] = []
        self.ends: list[int] = []
        self.prompts: list[list[int]] = []
        self.outputs: list[list[int]] = []
        self.captures: list[tokens_pb2.TokenCapture] = []
        self.replies: list[model_pb2.CreateResponseResponse] = []
        self.calls = 0

    @property
    def tokens(self) -> list[int]:
        """Those of the last call, prompt and output."""
        return self.prompts[-1] + self.outputs[-1] if self.prompts else []

    def request(
        self, *new: Json, whole: bool = False, tokens: bool = True, **params: Any
    ) -> model_pb2.CreateResponseRequest:
        """The next call. whole: as a caller that was told CONVERSATION_UNKNOWN sends it."""
        first = not self.calls
        items = [*self.items, *new] if whole or first else list(new)
        request = model_pb2.CreateResponseRequest(
            params=params_from_json({**self.params, **params, "input": items}),
            rollout_id="r1",
            call_id=f"c{self.calls + 1}",
        )
        request.capture.token_ids = request.capture.logprobs = True
        request.conversation.id = "r1/1"
        if not (first or whole):
            request.conversation.parent_call_id = f"c{self.calls}"
            request.conversation.parent_token = self.replies[-1].conversation_token
        if whole and tokens and not first:
            sent = request.conversation.prefix_tokens
            sent.token_ids = struct.pack(f"<{len(self.tokens)}i", *self.tokens)
            sent.item_ends.extend(self.ends)
        return request

    async def ask(self, *new: Json, **how: Any) -> model_pb2.CreateResponseResponse:
        """Makes the next call and takes its answer into the conversation."""
        request = self.request(*new, **how)
        async with asyncio.timeout(BOUND_S):
            reply = await self.service.CreateResponse(request, CallContext("CreateResponse"))
        self.take(reply, *new)
        return reply

    def take(self, reply: model_pb2.CreateResponseResponse, *new: Json) -> None:
        """Takes an answer, and checks what the law asks for."""
        self.calls += 1
        capture = reply.tokens
        prompt = self.tokens[: capture.prompt_prefix_tokens] + ids_of(capture.prompt_token_ids)
        output = ids_of(capture.output_token_ids)
        if not capture.HasField("fork") and self.tokens:
            assert capture.prompt_prefix_tokens == len(self.tokens)
        answer = items_to_list(reply.response.output)
        self.items += [*new, *answer]
        self.ends += [len(prompt)] * len(new) + [len(prompt) + len(output)] * len(answer)
        self.prompts.append(prompt)
        self.outputs.append(output)
        self.captures.append(capture)
        self.replies.append(reply)


def user(text: str) -> Json:
    """A question."""
    return {"type": "message", "role": "user", "content": text}


def result(reply: model_pb2.CreateResponseResponse, text: str) -> Json:
    """The answer of the first tool called."""
    (call,) = [one.function_call for one in reply.response.output if one.HasField("function_call")]
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}

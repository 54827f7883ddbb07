"""The model service over the real embedded model. Answer quality is not asserted."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.local import LocalBackend
from gymmesh_model.local import WeightsError, resolve_weights
from gymmesh_responses import (
    items_to_list,
    params_from_json,
    text_of,
    unpack_ids,
    unpack_logprobs,
)
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.conftest import require

TOOL = {
    "type": "function",
    "name": "calculator",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string", "pattern": "^[0-9]{1,3} [+*] [0-9]{1,3}$"}},
        "required": ["expression"],
    },
    "strict": None,
}


@pytest.fixture(scope="module", autouse=True)
def _embedded_model() -> None:
    require(
        importlib.util.find_spec("xllamacpp") is not None, "xllamacpp", "install gymmesh[local]"
    )
    try:
        asyncio.run(resolve_weights())
    except WeightsError as error:
        require(False, "the default model's weights", str(error))


async def ask(service: ModelService, params: dict[str, Any]) -> Any:
    request = model_pb2.CreateResponseRequest(params=params_from_json(params), seed=2**40)
    return (await service.CreateResponse(request, CallContext("CreateResponse"))).response


async def stream(service: ModelService, params: dict[str, Any]) -> tuple[list[str], Any]:
    """The deltas of a streamed answer, and the answer."""
    call = model_pb2.CreateResponseRequest(params=params_from_json(params), seed=7)
    asked = model_pb2.StreamResponseRequest(call=call)
    async with aclosing(service.StreamResponse(asked, CallContext("StreamResponse"))) as frames:
        got = [frame async for frame in frames]
    return [frame.delta.text.decode() for frame in got[:-1]], got[-1].completed.response


async def test_a_tool_call_and_then_an_answer() -> None:
    options = {"context": 1024, "slots": 2, "answer_pattern": "-?[0-9]{1,6}", "call_first": True}
    params = {"max_output_tokens": 64, "temperature": 0}
    service = ModelService(ModelConfig(params=params, options=options), "policy", "policy-0")
    await service.open(PeerDirectory())
    try:
        items: list[Any] = [{"role": "user", "content": "How much is 12 + 30?"}]
        first = await ask(service, {"input": items, "tools": [TOOL]})
        call = first.output[0].function_call
        assert call.name == "calculator"
        expression = json.loads(call.arguments)["expression"]
        assert re.fullmatch("[0-9]{1,3} [+*] [0-9]{1,3}", expression)
        assert first.usage.output_tokens > 0
        items += items_to_list(first.output)
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "42"})
        final = await ask(service, {"input": items, "tools": [TOOL], "tool_choice": "none"})
        assert re.fullmatch("-?[0-9]{1,6}", text_of(final.output[0]))
        assert final.model == "SmolLM2-135M-Instruct.Q4_1"
        with pytest.raises(MeshError) as caught:
            await ask(service, {"input": "many words " * 2000})
        assert caught.value.reason_name == "MODEL_CONTEXT_EXCEEDED"
        assert caught.value.metadata["limit_tokens"] == "1024"
        cut = await ask(service, {"input": "Tell a story.", "max_output_tokens": 3})
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        with pytest.raises(MeshError) as caught:
            await ask(service, {"input": "x", "previous_response_id": "resp_1"})
        assert caught.value.reason_name == "PARAMETER_UNSUPPORTED"
    finally:
        await service.close()


async def test_a_streamed_answer() -> None:
    config = ModelConfig(params={"temperature": 0}, options={"context": 1024, "slots": 1})
    service = ModelService(config, "policy", "policy-0")
    await service.open(PeerDirectory())
    try:
        story = {"input": "Tell a story.", "max_output_tokens": 12}
        deltas, told = await stream(service, story)
        assert "".join(deltas) == text_of(told.output[0])
        assert len(deltas) > 1
        assert told.usage.output_tokens == 12
        # A constrained answer shows its meaning only at its end.
        asked = {"input": "12 + 30?", "tools": [TOOL], "tool_choice": "required"}
        deltas, called = await stream(service, {**asked, "max_output_tokens": 64})
        assert (deltas, called.output[0].function_call.name) == ([], "calculator")
        # Aborted, it keeps what it had written.
        long = params_from_json({"input": "Tell a long story.", "max_output_tokens": 900})
        call = model_pb2.CreateResponseRequest(params=long, request_id="r1")
        asked_long = model_pb2.StreamResponseRequest(call=call)
        got = []
        async with aclosing(service.StreamResponse(asked_long, CallContext("s"))) as frames:
            got.append(await anext(frames))
            abort = model_pb2.AbortResponseRequest(request_id="r1")
            await service.AbortResponse(abort, CallContext("AbortResponse"))
            got += [frame async for frame in frames]
        cut = got[-1].completed.response
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "aborted")
        assert text_of(cut.output[0]) == "".join(one.delta.text.decode() for one in got[:-1])
    finally:
        await service.close()


async def test_a_model_file_that_is_not_there() -> None:
    service = ModelService(ModelConfig(model="/nowhere/x.gguf"), "policy", "policy-0")
    with pytest.raises(ConfigError, match=r"models\.policy: .*x\.gguf"):
        await service.open(PeerDirectory())


async def test_a_pattern_that_cannot_be_held() -> None:
    service = ModelService(ModelConfig(options={"answer_pattern": r"(?=x)"}), "policy", "policy-0")
    with pytest.raises(ConfigError, match="answer_pattern"):
        await service.open(PeerDirectory())


async def test_scores_are_those_of_an_unforced_answer() -> None:
    """Each token's log probability equals what the server lists for it where it is free."""
    texts = ["Answer: B", "Hello"]
    options = {"context": 1024, "slots": 2}
    service = ModelService(ModelConfig(options=options), "policy", "policy-0")
    await service.open(PeerDirectory())
    try:
        about = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
        assert about.capabilities.scoring
        request = model_pb2.ScoreContinuationsRequest(continuations=texts)
        request.params.CopyFrom(params_from_json({"input": "Which is even? A: 3, B: 4"}))
        answer = await service.ScoreContinuations(request, CallContext("ScoreContinuations"))
        backend = service._opened().backend
        assert isinstance(backend, LocalBackend)
        server = backend._server
        assert server is not None
        base = server.base_url.removesuffix("/v1")
        async with aiohttp.ClientSession(headers=server.headers) as session:

            async def post(path: str, body: dict[str, Any]) -> Any:
                async with session.post(base + path, json=body) as reply:
                    return await reply.json()

            messages = [{"role": "user", "content": "Which is even? A: 3, B: 4"}]
            text = (await post("/apply-template", {"messages": messages}))["prompt"]
            asked = {"content": text, "add_special": True, "parse_special": True}
            prompt = (await post("/tokenize", asked))["tokens"]
            assert answer.prompt_tokens == len(prompt)
            for wanted, score in zip(texts, answer.scores, strict=True):
                ids = unpack_ids(score.token_ids)
                written = (await post("/detokenize", {"tokens": ids}))["content"]
                assert written == wanted
                greedy = True
                for place, found in enumerate(unpack_logprobs(score.logprobs)):
                    free = {"prompt": prompt + ids[:place], "n_predict": 1, "n_probs": 60_000}
                    [entry] = (await post("/completion", free))["completion_probabilities"]
                    listed = {one["id"]: one["logprob"] for one in entry["top_logprobs"]}
                    assert found == pytest.approx(listed[ids[place]], abs=1e-3)
                    greedy &= max(listed, key=lambda one: listed[one]) == ids[place]
                assert score.greedy == greedy
    finally:
        await service.close()

"""What a real vLLM answers through the model service."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelService
from gymmesh_responses import params_from_json
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from tests.vllm.talk import ADD, BOUND_S, Talk, call_of, logprobs_of, said, user

STOP = 2  # the token <|im_end|> of the default model


async def test_it_answers(talk: Talk) -> None:
    reply = await talk.ask(user("What is the capital of France?"))
    assert "Paris" in said(reply)
    response = reply.response
    assert (response.status, response.model) == ("completed", "small")
    assert response.usage.input_tokens == len(talk.prompts[0])
    assert response.usage.output_tokens == len(talk.outputs[0])


async def test_it_says_what_it_is(service: ModelService) -> None:
    model = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
    assert (model.endpoint_model, model.context_tokens) == ("small", 2048)
    assert model.capabilities.token_ids
    assert model.capabilities.logprobs


async def test_tokens_and_log_probabilities_are_those_of_the_answer(talk: Talk) -> None:
    reply = await talk.ask(user("What is the capital of France?"))
    capture = reply.tokens
    logprobs = logprobs_of(capture)
    assert talk.outputs[0][-1] == STOP
    assert len(logprobs) == len(talk.outputs[0])
    # Greedy sampling takes the likeliest token; a mean below one half would be no such model.
    assert all(-5.0 < one <= 0.0 for one in logprobs)
    again = Talk(talk.service)
    await again.ask(user("What is the capital of France?"))
    assert (again.prompts, again.outputs) == (talk.prompts, talk.outputs)
    assert logprobs_of(again.captures[0]) == pytest.approx(logprobs, abs=0.05)


async def test_an_answer_that_is_cut_off_says_so(talk: Talk) -> None:
    reply = await talk.ask(user("Tell me a long story."), max_output_tokens=5)
    assert reply.response.status == "incomplete"
    assert reply.response.incomplete_details.reason == "max_output_tokens"
    assert len(talk.outputs[0]) == 5
    assert STOP not in talk.outputs[0]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "add"}])
async def test_a_tool_that_must_be_called_is_called(talk: Talk, choice: object) -> None:
    question = user("What is 2 + 3? Use the tool.")
    reply = await talk.ask(question, tools=[ADD], tool_choice=choice)
    call = call_of(reply)
    assert call.name == "add"
    assert call.call_id
    arguments = json.loads(call.arguments)
    assert sorted(arguments) == ["a", "b"]
    assert all(isinstance(value, int) for value in arguments.values())
    assert reply.response.status == "completed"


async def test_an_answer_in_a_given_form(talk: Talk) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"format": {"type": "json_schema", "name": "number", "schema": schema, "strict": True}}
    reply = await talk.ask(user("Give me a number as JSON."), text=form)
    assert isinstance(json.loads(said(reply))["n"], int)


async def test_deltas_make_up_the_answer(talk: Talk) -> None:
    request = talk.request(user("What is the capital of France?"))
    deltas: list[bytes] = []
    completed = None
    stream = talk.service.StreamResponse(
        model_pb2.StreamResponseRequest(call=request), CallContext("StreamResponse")
    )
    async with asyncio.timeout(BOUND_S), aclosing(stream) as frames:
        async for frame in frames:
            assert completed is None
            if frame.HasField("delta"):
                deltas.append(frame.delta.text)
            else:
                completed = frame.completed
    assert completed is not None
    talk.take(completed, user("What is the capital of France?"))
    assert len(deltas) > 2
    assert b"".join(deltas).decode() == said(completed)
    unstreamed = Talk(talk.service)
    await unstreamed.ask(user("What is the capital of France?"))
    assert (talk.prompts, talk.outputs) == (unstreamed.prompts, unstreamed.outputs)
    assert len(logprobs_of(completed.tokens)) == len(talk.outputs[0])


async def test_an_aborted_answer_keeps_what_it_had(talk: Talk) -> None:
    request = talk.request(
        user("Count from one to one thousand, in words."), temperature=1, max_output_tokens=1500
    )
    request.request_id = f"{talk.name}-abort"
    stream = talk.service.StreamResponse(
        model_pb2.StreamResponseRequest(call=request), CallContext("StreamResponse")
    )
    completed, abort = None, model_pb2.AbortResponseRequest(request_id=request.request_id)
    async with asyncio.timeout(BOUND_S), aclosing(stream) as frames:
        await anext(frames)
        await talk.service.AbortResponse(abort, CallContext("AbortResponse"))
        async for frame in frames:
            completed = frame.completed if frame.HasField("completed") else None
    assert completed is not None
    assert completed.response.incomplete_details.reason == "aborted"
    talk.take(completed)
    assert 0 < len(talk.outputs[0]) < 1500
    assert said(completed)
    # The next answer is not slowed down by one that nobody wants any more.
    assert "Paris" in said(await Talk(talk.service).ask(user("What is the capital of France?")))


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"input": "word " * 3000}, errors.ERROR_REASON_MODEL_CONTEXT_EXCEEDED),
        ({"input": "a", "temperature": -3}, errors.ERROR_REASON_MODEL_REQUEST_REFUSED),
    ],
)
async def test_what_vllm_refuses_is_typed(
    service: ModelService, params: dict[str, object], reason: int
) -> None:
    request = model_pb2.CreateResponseRequest(params=params_from_json(params))
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(MeshError) as caught:
            await service.CreateResponse(request, CallContext("CreateResponse"))
    assert caught.value.reason == reason


async def test_calls_side_by_side_do_not_mix(service: ModelService) -> None:
    talks = [Talk(service, max_output_tokens=12) for _ in range(8)]
    names = ["France", "Italy", "Spain", "Japan", "Egypt", "Peru", "Norway", "Greece"]
    await asyncio.gather(
        *(
            talk.ask(user(f"What is the capital of {name}?"))
            for talk, name in zip(talks, names, strict=True)
        )
    )
    texts = [said(talk.replies[0]) for talk in talks]
    assert "Paris" in texts[0]
    assert "Rome" in texts[1]
    assert len({tuple(talk.prompts[0]) for talk in talks}) == 8

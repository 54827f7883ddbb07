"""The tokens of a conversation with a real vLLM: exact from turn to turn, and of which weights."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelService
from gymmesh_runtime.context import CallContext
from tests.vllm.talk import ADD, BOUND_S, Talk, result, user, whole


async def test_three_turns_go_on_from_each_other(talk: Talk) -> None:
    await talk.ask(user("What is the capital of France?"))
    await talk.ask(user("And of Italy?"))
    await talk.ask(user("And of Spain?"))
    whole(talk)
    assert talk.prompts[2][: len(talk.prompts[1])] == talk.prompts[1]


async def test_three_turns_with_a_tool_go_on_from_each_other(talk: Talk) -> None:
    talk.params["tools"] = [ADD]
    first = await talk.ask(user("What is 2 + 3? Use the tool."), tool_choice="required")
    await talk.ask(result(first, "5"), tool_choice="none")
    await talk.ask(user("Thank you. And 4 + 4?"), tool_choice="required")
    whole(talk)


async def test_an_answer_that_was_cut_off_can_be_gone_on_from(talk: Talk) -> None:
    await talk.ask(user("Tell me a long story."), max_output_tokens=7)
    await talk.ask(user("Go on."), max_output_tokens=7)
    await talk.ask(user("And then?"), max_output_tokens=7)
    whole(talk)


async def test_what_was_forgotten_goes_on_from_its_tokens(talk: Talk) -> None:
    talk.params["tools"] = [ADD]
    first = await talk.ask(user("What is 2 + 3? Use the tool."), tool_choice="required")
    # As to a service that doesn't hold the conversation: all of it, and its tokens.
    await talk.ask(result(first, "5"), tool_choice="none", whole=True)
    await talk.ask(user("Thank you."), whole=True)
    whole(talk)


async def test_rendered_anew_the_conversation_has_other_tokens(talk: Talk) -> None:
    """Why the tokens are kept: vLLM gives arguments otherwise than the model wrote them."""
    talk.params["tools"] = [ADD]
    first = await talk.ask(user("What is 2 + 3? Use the tool."), tool_choice="required")
    anew = Talk(talk.service, tools=[ADD])
    anew.items = talk.items
    await anew.ask(result(first, "5"), tool_choice="none")
    assert anew.prompts[0][: len(talk.prompts[0])] == talk.prompts[0]
    assert anew.prompts[0][: len(talk.tokens)] != talk.tokens


async def test_each_answer_says_which_weights_gave_it(service: ModelService) -> None:
    await _announce(service, 5)
    talk = Talk(service)
    await talk.ask(user("What is the capital of France?"))
    assert [(one.version, one.first_token) for one in talk.captures[0].weights] == [(5, 0)]


async def test_a_swap_inside_an_answer_is_told(service: ModelService, kind: str) -> None:
    await _announce(service, 7)
    talk = Talk(service)
    request = talk.request(user("Tell me a long story."), max_output_tokens=400, temperature=1)
    stream = service.StreamResponse(
        model_pb2.StreamResponseRequest(call=request), CallContext("StreamResponse")
    )
    async with asyncio.timeout(BOUND_S), aclosing(stream) as frames:
        await anext(frames)
        await _announce(service, 8)
        completed = [frame.completed async for frame in frames if frame.HasField("completed")]
    talk.take(completed[0], user("Tell me a long story."))
    (first, start), (second, swap) = (
        (one.version, one.first_token) for one in completed[0].tokens.weights
    )
    assert (first, start, second) == (7, 0, 8)
    # The engine knows the token; of a server the whole answer counts as the older weights'.
    written = len(talk.outputs[0])
    assert 0 < swap < written if kind == "engine" else swap == written


async def _announce(service: ModelService, version: int) -> None:
    async with asyncio.timeout(BOUND_S):
        await service.SetWeightsVersion(
            model_pb2.SetWeightsVersionRequest(version=version), CallContext("SetWeightsVersion")
        )

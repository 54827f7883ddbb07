"""NeMo RL's endpoint as a model: what it refuses is never sent, and what it samples is exact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_trainers.nemo_rl import NemoPolicy
from tests.support.dialogue import Dialogue, result, user
from tests.support.nemo_server import NemoServer
from tests.support.vllm_server import calls, says

BOUND_S = 120.0
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}
SAMPLING = {"temperature": 0.7, "top_p": 0.9}
SCRIPT = [calls("add", '{"a":   2}', text="let me see"), says("it is five"), says("done")]


@asynccontextmanager
async def serving(server: NemoServer) -> AsyncIterator[ModelService]:
    policy = NemoPolicy([server.url], model="toy")
    service = ModelService(ModelConfig(), "policy", "p-0", backend=policy)
    async with asyncio.timeout(BOUND_S):
        await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


async def three_turns(talk: Dialogue) -> None:
    reply = await talk.ask(user("what is two and three"))
    reply = await talk.ask(result(reply, "five"))
    await talk.ask(user("and now"))


@pytest.mark.parametrize("splits", [False, True])
async def test_three_turns_are_exact(splits: bool) -> None:
    server = NemoServer(splits=splits, script=list(SCRIPT))
    async with server, serving(server) as service:
        talk = Dialogue(service, tools=[TOOL], **SAMPLING)
        await three_turns(talk)
    assert not any(capture.HasField("fork") for capture in talk.captures)
    assert talk.prompts == server.prompts
    assert talk.outputs == server.outputs
    for place in (1, 2):
        before = server.prompts[place - 1] + server.outputs[place - 1]
        assert server.prompts[place][: len(before)] == before


async def test_an_answer_that_was_cut_is_gone_on_from() -> None:
    server = NemoServer(splits=True, script=[says("half", cut=True), says("rest")])
    async with server, serving(server) as service:
        talk = Dialogue(service, **SAMPLING)
        await talk.ask(user("a"))
        await talk.ask(user("b"))
    assert not talk.captures[1].HasField("fork")
    assert talk.prompts == server.prompts


async def test_what_is_sent_is_what_the_endpoint_asserts() -> None:
    server = NemoServer(script=list(SCRIPT))
    async with server, serving(server) as service:
        talk = Dialogue(service, tools=[TOOL], **SAMPLING)
        await talk.ask(result(await talk.ask(user("a")), "five"))
    first, second = server.bodies
    assert (first["logprobs"], first["top_logprobs"]) == (True, 0)
    assert first["return_tokens_as_token_ids"] is True
    assert not any("prompt_token_ids" in one for one in first["messages"])
    [told] = [one for one in second["messages"] if "prompt_token_ids" in one]
    assert told["role"] == "assistant"
    assert told["prompt_token_ids"] == server.prompts[0]
    assert told["generation_token_ids"] == server.outputs[0]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"temperature": 0.7}, "does not set top_p. Set top_p in .* --top-p"),
        ({"top_p": 0.9}, "does not set temperature. Set temperature in .* --temperature"),
        ({**SAMPLING, "top_k": 5}, "does not support top_k, but this call has 5"),
    ],
)
async def test_what_the_endpoint_would_assert_is_refused_before(
    params: dict[str, Any], said: str
) -> None:
    server = NemoServer()
    async with server, serving(server) as service:
        with pytest.raises(MeshError, match=said) as caught:
            await Dialogue(service, **params).ask(user("a"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_REQUEST_REFUSED
    assert not server.bodies


async def test_an_endpoint_that_renders_anew_makes_a_fork() -> None:
    server = NemoServer(splits=True, keeps=False, script=list(SCRIPT))
    async with server, serving(server) as service:
        talk = Dialogue(service, tools=[TOOL], **SAMPLING)
        await talk.ask(result(await talk.ask(user("a")), "five"))
    assert talk.captures[1].fork.reason == tokens_pb2.FORK_REASON_TEMPLATE_REWRITES


async def test_a_full_context_is_the_rollouts_end_and_no_failure() -> None:
    server = NemoServer(context=10)
    async with server, serving(server) as service:
        with pytest.raises(MeshError) as caught:
            await Dialogue(service, **SAMPLING).ask(user("a long question"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_CONTEXT_EXCEEDED


async def test_an_answer_without_tokens_is_refused() -> None:
    def bare(answer: dict[str, Any]) -> dict[str, Any]:
        del answer["choices"][0]["message"]["generation_log_probs"]
        return answer

    server = NemoServer(alter=bare)
    async with server, serving(server) as service:
        with pytest.raises(
            MeshError, match="Check that the URL is an endpoint of NeMo RL"
        ) as caught:
            await Dialogue(service, **SAMPLING).ask(user("a"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID

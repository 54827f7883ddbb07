"""vLLM and SGLang called by token ids: every call's tokens are exact, whoever holds the engine."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.token_engines import SglangEngine, VllmEngine
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_responses import text_of
from gymmesh_runtime.config import ConfigError, Secret
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support.dialogue import Dialogue, ids_of, result, user
from tests.support.token_servers import Kind, TokenServer, ToyTokenizer
from tests.support.vllm_server import END, calls, decode, logprob, says

BOUND_S = 120.0
TOY = "tests.support.token_servers:toy_tokenizer"
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}
BACKENDS = {"vllm": "vllm_tokens", "sglang": "sglang"}
SCRIPT = [
    calls("add", '{"a":   2, "b":3}', text="let me see"),
    says("it is five"),
    says("done"),
]
both = pytest.mark.parametrize("kind", ["vllm", "sglang"])


def configured(server: TokenServer, *more: str, **config: Any) -> ModelService:
    """A model of a configuration at the server. more: further URLs."""
    options = {"tokenizer": TOY, **config.pop("options", {})}
    given = {"timeout_s": 30.0, "max_retries": 0, "model": "toy", "options": options, **config}
    urls = [server.url, *more]
    return ModelService(
        ModelConfig(backend=BACKENDS[server.kind], urls=urls, **given), "policy", "p-0"
    )


def made(server: TokenServer, tokenizer: ToyTokenizer, **engine: Any) -> ModelService:
    """A model that a program made over an engine at the server."""
    kind = VllmEngine if server.kind == "vllm" else SglangEngine
    backend = TokenBackend(tokenizer, kind(server.url, **engine))
    return ModelService(ModelConfig(), "policy", "p-0", backend=backend)


@asynccontextmanager
async def opened(service: ModelService) -> AsyncIterator[ModelService]:
    async with asyncio.timeout(BOUND_S):
        await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


@both
@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("is_configured", [False, True])
async def test_three_turns_are_exact(kind: Kind, splits: bool, is_configured: bool) -> None:
    async with TokenServer(kind, splits=splits, script=list(SCRIPT)) as server:
        service = configured(server) if is_configured else made(server, ToyTokenizer())
        async with opened(service):
            talk = Dialogue(service, tools=[TOOL])
            reply = await talk.ask(user("what is two and three"))
            reply = await talk.ask(result(reply, "five"))
            await talk.ask(user("and now"))
    assert not any(capture.HasField("fork") for capture in talk.captures)
    assert talk.prompts == server.prompts
    assert talk.outputs == server.outputs
    for before, after in zip(
        [p + o for p, o in zip(server.prompts, server.outputs, strict=True)],
        server.prompts[1:],
        strict=False,
    ):
        assert after[: len(before)] == before
    # What the model wrote is there to the letter, and what the template adds around it.
    assert '"arguments": {"a":   2, "b":3}}</tool_call><|im_end|>' in decode(talk.tokens)
    logprobs = [one[0] for one in struct.iter_unpack("<f", talk.captures[0].logprobs)]
    assert logprobs == [logprob(one) for one in talk.outputs[0]]
    assert text_of(reply.response.output[0]) == "it is five"


@both
async def test_a_conversation_sent_whole_again_keeps_its_tokens(kind: Kind) -> None:
    server = TokenServer(kind, splits=True, script=[says("first"), says("other"), says("second")])
    async with server, opened(configured(server, max_conversations=1)) as service:
        talk, other = Dialogue(service), Dialogue(service)
        await talk.ask(user("a"))
        request = other.request(user("else"))
        request.conversation.id = "r2/1"
        await service.CreateResponse(request, CallContext("CreateResponse"))
        with pytest.raises(MeshError) as caught:
            await talk.ask(user("b"))
        assert caught.value.reason == errors_pb2.ERROR_REASON_CONVERSATION_UNKNOWN
        await talk.ask(user("b"), whole=True)
    assert talk.prompts[1][: len(talk.prompts[0]) + len(talk.outputs[0])] == (
        talk.prompts[0] + talk.outputs[0]
    )
    assert not talk.captures[1].HasField("fork")


@both
@pytest.mark.parametrize("appends", [False, True])
async def test_a_template_that_rewrites_is_a_fork_unless_prompts_are_append_only(
    kind: Kind, appends: bool
) -> None:
    options = {"tokenizer": f"{TOY}_that_drops", "think_tags": True}
    server = TokenServer(kind, script=[says("one", reasoning="hm"), says("two")])
    async with server, opened(configured(server, options=options)) as service:
        talk = Dialogue(service)
        for question in (user("a"), user("b")):
            request = talk.request(question)
            request.append_only = appends
            reply = await service.CreateResponse(request, CallContext("CreateResponse"))
            talk.take(reply, question)
    first, second = talk.captures
    assert not first.HasField("fork")
    assert second.HasField("fork") != appends
    if not appends:
        assert second.fork.reason == tokens_pb2.FORK_REASON_TEMPLATE_REWRITES
    assert talk.prompts == server.prompts


@both
async def test_what_is_sent(kind: Kind) -> None:
    params = {"temperature": 0.7, "top_p": 0.9, "max_output_tokens": 9}
    options = {"priority": 3, "stop_token_ids": [END, 7]}
    async with TokenServer(kind) as server:
        service = configured(server, params={"top_k": 5}, options=options, api_key=Secret("k1"))
        async with opened(service):
            talk = Dialogue(service, **params)
            request = talk.request(user("a"))
            request.seed = 11
            await service.CreateResponse(request, CallContext("CreateResponse"))
    [body] = server.bodies
    said = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "stop_token_ids": [END, 7]}
    if kind == "vllm":
        assert body.pop("prompt") == server.prompts[0]
        assert body == said | {
            "model": "toy",
            "max_tokens": 9,
            "seed": 11,
            "priority": 3,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
    else:
        assert body.pop("input_ids") == server.prompts[0]
        assert body.pop("rid")
        sampling = said | {"max_new_tokens": 9, "sampling_seed": 11}
        assert body == {"sampling_params": sampling, "return_logprob": True, "priority": 3}


@both
async def test_a_call_without_a_limit_gets_the_room_that_the_context_has(kind: Kind) -> None:
    async with TokenServer(kind, context=500) as server, opened(configured(server)) as service:
        await Dialogue(service).ask(user("a"))
        with pytest.raises(MeshError) as caught:
            await Dialogue(service).ask(user("b " * 600))
    [body] = server.bodies
    limit = body["max_tokens"] if kind == "vllm" else body["sampling_params"]["max_new_tokens"]
    assert limit == 500 - len(server.prompts[0])
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_CONTEXT_EXCEEDED


@both
async def test_a_server_that_does_not_say_its_context_is_not_asked_at_each_call(
    kind: Kind,
) -> None:
    server = TokenServer(kind, says_context=False)
    async with server, opened(configured(server)) as service:
        for _ in range(3):
            await Dialogue(service).ask(user("a"))
    assert server.asked == 1
    limits = [
        body["max_tokens"] if kind == "vllm" else body["sampling_params"]["max_new_tokens"]
        for body in server.bodies
    ]
    assert limits == [None] * 3


@both
async def test_an_answer_that_the_limit_cut_is_incomplete(kind: Kind) -> None:
    server = TokenServer(kind, script=[says("cut", cut=True)])
    async with server, opened(configured(server)) as service:
        reply = await Dialogue(service).ask(user("a"))
    assert reply.response.status == "incomplete"
    assert reply.response.incomplete_details.reason == "max_output_tokens"


@both
async def test_another_server_is_asked_where_one_fails(kind: Kind) -> None:
    broken, good = TokenServer(kind, fails=[503, 500]), TokenServer(kind)
    async with broken, good, opened(configured(broken, good.url, max_retries=2)) as service:
        for question in "abcd":
            request = Dialogue(service).request(user(question))
            request.rollout_id = request.conversation.id = question
            reply = await service.CreateResponse(request, CallContext("CreateResponse"))
            assert reply.tokens.output_token_ids
    failed = 2 - len(broken.fails)
    assert len(broken.bodies) + len(good.bodies) == 4 + failed
    if kind == "sglang":
        # A server may still work on a request that it failed: each try has an id of its own.
        sent = [body["rid"] for body in broken.bodies + good.bodies]
        assert len(set(sent)) == len(sent)


@both
async def test_a_call_that_nobody_waits_for_ends_at_the_server(kind: Kind) -> None:
    server = TokenServer(kind, script=[says("never", hangs_after=0)])
    async with server, opened(configured(server)) as service, asyncio.timeout(BOUND_S):
        call = asyncio.create_task(Dialogue(service).ask(user("a")))
        await server.hanging.wait()
        call.cancel()
        await server.left.wait()  # its connection closed
        if kind == "sglang":
            await server.abort_came.wait()
    assert server.aborted == ([server.bodies[0]["rid"]] if kind == "sglang" else [])


@both
async def test_answers_say_which_weights_sampled_them(kind: Kind) -> None:
    spans = [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 3}]
    server = TokenServer(kind, spans=spans, version="5")
    async with server, opened(configured(server)) as service:
        reply = await Dialogue(service).ask(user("a"))
    assert [(one.version, one.first_token) for one in reply.tokens.weights] == [(4, 0), (5, 1)]


async def test_sglang_names_one_version_for_a_whole_answer() -> None:
    for version, known in (("6", [(6, 0)]), ("default", [])):
        server = TokenServer("sglang", version=version)
        async with server, opened(configured(server)) as service:
            reply = await Dialogue(service).ask(user("a"))
        found = [(one.version, one.first_token) for one in reply.tokens.weights]
        assert found == known


@pytest.mark.parametrize(
    ("kind", "options", "params", "expected"),
    [
        ("vllm", {}, {}, "RAW"),
        ("vllm", {"weights_poll_s": 0}, {"top_p": 0.5}, "SAMPLING"),
        ("vllm", {"logprobs_mode": "raw_logprobs"}, {}, "RAW"),
        ("vllm", {"logprobs_mode": "processed_logprobs"}, {"top_p": 0.5}, "SAMPLING"),
        ("sglang", {}, {"temperature": 1.3}, "SAMPLING"),
        ("sglang", {}, {"temperature": 0.0}, "RAW"),
        ("sglang", {}, {"top_p": 0.5}, "UNSPECIFIED"),
        ("sglang", {"original_logprobs": True}, {"temperature": 1.3}, "RAW"),
    ],
)
async def test_log_probabilities_say_what_they_are_of(
    kind: Kind, options: dict[str, Any], params: dict[str, Any], expected: str
) -> None:
    # A server started with the other mode, where the configuration does not name it.
    mode = "processed_logprobs" if options == {"weights_poll_s": 0} else "raw_logprobs"
    server = TokenServer(kind, mode=mode)
    async with server, opened(configured(server, options=options)) as service:
        reply = await Dialogue(service, **params).ask(user("a"))
    found = tokens_pb2.LogprobDistribution.Name(reply.tokens.logprob_distribution)
    assert found == f"LOGPROB_DISTRIBUTION_{expected}"


async def test_a_vllm_that_returns_no_ids_is_read_by_the_names_of_its_tokens() -> None:
    def older(answer: dict[str, Any]) -> dict[str, Any]:
        del answer["choices"][0]["token_ids"], answer["choices"][0]["prompt_token_ids"]
        return answer

    server = TokenServer("vllm", splits=True, alter=older)
    async with server, opened(configured(server)) as service:
        reply = await Dialogue(service).ask(user("a"))
    assert ids_of(reply.tokens.output_token_ids) == server.outputs[0]


def other_prompt(answer: dict[str, Any]) -> dict[str, Any]:
    answer["choices"][0]["prompt_token_ids"] = [5]
    return answer


def no_ids(answer: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"text": "ok", "finish_reason": "stop"}]}


def fewer_logprobs(answer: dict[str, Any]) -> dict[str, Any]:
    answer["choices"][0]["logprobs"]["token_logprobs"].pop()
    return answer


def not_sampled(answer: dict[str, Any]) -> dict[str, Any]:
    answer["output_ids"] = answer["output_ids"][:-1]
    return answer


def cut_prompt(answer: dict[str, Any]) -> dict[str, Any]:
    answer["meta_info"]["prompt_tokens"] -= 1
    return answer


@pytest.mark.parametrize(
    ("kind", "alter", "said"),
    [
        ("vllm", other_prompt, "prompt differs from"),
        ("vllm", no_ids, "no token ids"),
        ("vllm", fewer_logprobs, "the number of tokens is 2"),
        ("sglang", not_sampled, "output_ids differ"),
        ("sglang", cut_prompt, "tokens were sent"),
        ("sglang", lambda answer: {"text": "ok"}, "no meta_info"),
    ],
)
async def test_an_answer_that_is_not_exact_is_refused(kind: Kind, alter: Any, said: str) -> None:
    async with TokenServer(kind, alter=alter) as server, opened(configured(server)) as service:
        with pytest.raises(MeshError) as caught:
            await Dialogue(service).ask(user("a"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID
    assert said in caught.value.message


async def test_an_abort_that_nobody_asked_for_is_a_failure() -> None:
    def aborted(answer: dict[str, Any]) -> dict[str, Any]:
        answer["meta_info"]["finish_reason"] = {"type": "abort", "message": "Aborted"}
        return answer

    server = TokenServer("sglang", alter=aborted)
    async with server, opened(configured(server)) as service:
        with pytest.raises(MeshError) as caught:
            await Dialogue(service).ask(user("a"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_SERVER_ERROR


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "tokenizer"),
        ({"tokenizer": "tests.support.token_servers:nothing"}, "can't be imported"),
        ({"tokenizer": TOY, "tool_parser": "parrot"}, "unknown parser 'parrot'"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused(
    options: dict[str, Any], said: str
) -> None:
    config = ModelConfig(backend="sglang", url="http://127.0.0.1:1", options=options)
    with pytest.raises(ConfigError, match=said):
        await ModelService(config, "policy", "p-0").open(PeerDirectory())


@both
async def test_an_engine_of_a_programs_adds_no_limit(kind: Kind) -> None:
    """Several times as many calls at a time as a configured model gets."""
    many = 200
    server = TokenServer(kind, barrier=asyncio.Barrier(many))
    async with server, opened(made(server, ToyTokenizer())) as service, asyncio.timeout(BOUND_S):
        requests = [Dialogue(service).request(user("a")) for _ in range(many)]
        for number, request in enumerate(requests):
            request.rollout_id = request.conversation.id = str(number)
        context = CallContext("CreateResponse")
        await asyncio.gather(*(service.CreateResponse(one, context) for one in requests))
    assert len(server.prompts) == many

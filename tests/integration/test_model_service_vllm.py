"""The vllm backend against a small vLLM with a toy tokenizer: tokens stay exact, or it says so."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_responses import text_of
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support import vllm_server as fake
from tests.support.dialogue import Dialogue, ids_of, result, user
from tests.support.vllm_server import FakeVllm, calls, decode, encode, says

BOUND_S = 120.0
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}
REWRITES = tokens_pb2.FORK_REASON_TEMPLATE_REWRITES


@asynccontextmanager
async def serving(server: FakeVllm, **config: Any) -> AsyncIterator[ModelService]:
    given = {"timeout_s": 10.0, "max_retries": 0, "model": "toy", **config}
    service = ModelService(ModelConfig(backend="vllm", url=server.url, **given), "policy", "p-0")
    async with asyncio.timeout(BOUND_S):
        await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


async def three_turns(talk: Dialogue) -> None:
    """A question, a tool's result, another question."""
    reply = await talk.ask(user("what is two and three"))
    reply = await talk.ask(result(reply, "five"))
    await talk.ask(user("and now"))


SCRIPT = [
    calls("add", '{"a":   2, "b":3}', text="let me see"),
    says("it is five"),
    says("done"),
]


@pytest.mark.parametrize("scale_out", [False, True])
@pytest.mark.parametrize("splits", [False, True])
async def test_three_turns_are_exact(scale_out: bool, splits: bool) -> None:
    server = FakeVllm(scale_out=scale_out, splits=splits, script=list(SCRIPT))
    async with server, serving(server) as service:
        talk = Dialogue(service, tools=[TOOL])
        await three_turns(talk)
    assert not any(capture.HasField("fork") for capture in talk.captures)
    assert talk.prompts == server.prompts
    assert talk.outputs == server.outputs
    for before, after in zip(server.prompts, server.prompts[1:], strict=False):
        assert after[: len(before)] == before
    # What the model wrote is there to the letter, and what the template adds around it.
    text = decode(talk.tokens)
    assert (
        '<tool_call>{"name": "add", "arguments": {"a":   2, "b":3}}</tool_call><|im_end|>' in text
    )
    assert "<|im_end|>\n<|im_start|>tool\nfive<|im_end|>\n<|im_start|>assistant\nit is" in text
    logprobs = [one[0] for one in struct.iter_unpack("<f", talk.captures[0].logprobs)]
    assert logprobs == [fake.logprob(one) for one in talk.outputs[0]]
    assert sum(path == "chat" for path, _ in server.requests) == 3


async def test_an_answer_tokenised_as_written_costs_one_rendering_a_turn() -> None:
    server = FakeVllm(script=[says("one"), says("two"), says("three")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        for question in ("a", "b", "c"):
            await talk.ask(user(question))
    assert server.renderings == 2
    # Once one was tokenised otherwise, only turns with such an answer cost more.
    server = FakeVllm(script=[calls("add", '{"a":  1}'), says("one"), says("two"), says("three")])
    async with server, serving(server) as service:
        talk = Dialogue(service, tools=[TOOL])
        await talk.ask(result(await talk.ask(user("a")), "b"))
        assert server.renderings == 2
        await talk.ask(user("c"))
        await talk.ask(user("d"))
    assert server.renderings == 4
    assert not any(capture.HasField("fork") for capture in talk.captures)


async def test_only_what_is_new_travels_as_tokens() -> None:
    server = FakeVllm(script=[says("one"), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        await talk.ask(user("b"))
    capture = talk.captures[1]
    assert decode(ids_of(capture.prompt_token_ids)) == (
        "\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    )
    (chat,) = [body for path, body in server.requests if path == "chat"][1:]
    assert chat["messages"] == [{"role": "user", "content": "b"}]


@pytest.mark.parametrize("splits", [False, True])
async def test_evicted_and_sent_whole_there_is_no_fork(splits: bool) -> None:
    server = FakeVllm(splits=splits, script=list(SCRIPT))
    async with server, serving(server, max_conversations=1) as service:
        talk = Dialogue(service, tools=[TOOL])
        reply = await talk.ask(user("what is two and three"))
        other = Dialogue(service)
        request = other.request(user("else"))
        request.conversation.id = "r2/1"
        server.script.insert(0, says("something"))
        await service.CreateResponse(request, CallContext("CreateResponse"))
        with pytest.raises(MeshError) as caught:
            await talk.ask(result(reply, "five"))
        assert caught.value.reason == errors_pb2.ERROR_REASON_CONVERSATION_UNKNOWN
        await talk.ask(result(reply, "five"), whole=True)
        await talk.ask(user("and now"))
    assert not any(capture.HasField("fork") for capture in talk.captures)
    assert talk.captures[1].prompt_prefix_tokens == len(talk.prompts[0]) + len(talk.outputs[0])


@pytest.mark.parametrize("splits", [False, True])
async def test_another_replica_goes_on_from_the_tokens(splits: bool) -> None:
    server = FakeVllm(splits=splits, script=[*SCRIPT, says("more")])
    async with server, serving(server) as one, serving(server) as two:
        talk = Dialogue(one, tools=[TOOL])
        reply = await talk.ask(user("what is two and three"))
        await one.close()
        talk.service = two
        await talk.ask(result(reply, "five"), whole=True)
        await talk.ask(user("and now"))
        await talk.ask(user("and then"))
    assert not any(capture.HasField("fork") for capture in talk.captures)
    assert talk.prompts == server.prompts


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (FakeVllm(template="drops"), REWRITES),
        (FakeVllm(template="drops_old"), REWRITES),
        (FakeVllm(token_in=False, template="drops"), tokens_pb2.FORK_REASON_BACKEND),
        (FakeVllm(token_in=False, ignores=True, splits=True), tokens_pb2.FORK_REASON_BACKEND),
        (FakeVllm(tokenizes=False, splits=True), tokens_pb2.FORK_REASON_BACKEND),
        (FakeVllm(template="dated"), REWRITES),
    ],
    ids=["drops", "drops_old", "no token-in", "ignores tokens", "no rendering", "dated"],
)
async def test_what_cannot_go_on_is_a_fork(
    server: FakeVllm, reason: tokens_pb2.ForkReason.ValueType
) -> None:
    server.script, server.default = [says("one two", reasoning="hm hm")], says("three")
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        reply = await talk.ask(user("b"))
    fork = reply.tokens.fork
    assert fork.reason == reason
    assert fork.detail
    before = talk.prompts[0] + talk.outputs[0]
    assert talk.prompts[1] == server.prompts[-1]
    common = fork.common_tokens
    assert talk.prompts[1][:common] == before[:common]
    assert common < len(before)
    assert talk.prompts[1][common : common + 1] != before[common : common + 1]
    assert text_of(reply.response.output[-1]) == "three"


async def test_a_server_without_tokens_in_is_exact_where_it_can_be() -> None:
    server = FakeVllm(token_in=False, script=[says("one"), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        await talk.ask(user("b"))
    assert not talk.captures[1].HasField("fork")
    assert server.renderings == 0


async def test_reasoning_that_the_template_keeps_goes_on() -> None:
    server = FakeVllm(splits=True, script=[says("one", reasoning="hm"), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        await talk.ask(user("b"))
    assert not talk.captures[1].HasField("fork")
    assert "<think>hm</think>one" in decode(talk.prompts[1])


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("resent", [False, True])
async def test_an_answer_cut_short_is_ended_by_the_template(splits: bool, resent: bool) -> None:
    server = FakeVllm(splits=splits, script=[says("once upon", cut=True), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        await talk.ask(user("go on"), whole=resent)
    assert not talk.captures[1].HasField("fork")
    assert "assistant\nonce upon<|im_end|>\n<|im_start|>user\ngo on" in decode(talk.prompts[1])


@pytest.mark.parametrize("splits", [False, True])
async def test_a_template_that_ends_answers_late(splits: bool) -> None:
    server = FakeVllm(splits=splits, template="late_end", script=[says("one"), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        await talk.ask(user("b"))
    assert not talk.captures[1].HasField("fork")
    assert "assistant\none<|im_end|>\n<|im_start|>user\nb<|im_end|>" in decode(talk.prompts[1])


async def test_changed_tools_are_a_changed_preamble() -> None:
    server = FakeVllm(script=[says("one"), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        reply = await talk.ask(user("b"), tools=[TOOL])
    assert reply.tokens.fork.reason == tokens_pb2.FORK_REASON_PREAMBLE_CHANGED


async def test_items_changed_under_their_tokens_are_a_rewritten_history() -> None:
    server = FakeVllm(script=[says("one"), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        talk.items[0] = user("z")
        talk.ends = []
        reply = await talk.ask(user("b"), whole=True)
    assert reply.tokens.fork.reason == tokens_pb2.FORK_REASON_HISTORY_REWRITTEN
    assert reply.tokens.fork.common_tokens == len(encode("<|im_start|>user\n"))


async def test_a_picture_stands_in_the_way() -> None:
    server = FakeVllm(splits=True, script=[says("one"), says("two")])
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    words = {"type": "input_text", "text": "what is it"}
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask({"type": "message", "role": "user", "content": [words, picture]})
        reply = await talk.ask(user("b"))
    assert reply.tokens.fork.reason == tokens_pb2.FORK_REASON_MEDIA
    assert server.renderings == 0


async def test_streamed_answers_bring_their_tokens() -> None:
    server = FakeVllm(splits=True, script=[says("one two"), says("three")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        request = model_pb2.StreamResponseRequest(call=talk.request(user("b")))
        frames = []
        stream = service.StreamResponse(request, CallContext("StreamResponse"))
        async with asyncio.timeout(BOUND_S), aclosing(stream) as opened:
            frames = [frame async for frame in opened]
        assert b"".join(frame.delta.text for frame in frames[:-1]) == b"three"
        talk.take(frames[-1].completed, user("b"))
        await talk.ask(user("c"))
    assert talk.prompts == server.prompts
    assert talk.outputs == server.outputs
    assert not any(capture.HasField("fork") for capture in talk.captures)


async def test_a_streamed_prompt_that_was_ignored_shows_no_delta_twice() -> None:
    server = FakeVllm(
        splits=True, ignores=True, token_in=False, script=[says("one two"), says("x"), says("y")]
    )
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        request = model_pb2.StreamResponseRequest(call=talk.request(user("b")))
        stream = service.StreamResponse(request, CallContext("StreamResponse"))
        async with asyncio.timeout(BOUND_S), aclosing(stream) as opened:
            frames = [frame async for frame in opened]
    assert b"".join(frame.delta.text for frame in frames[:-1]) == b"y"
    assert frames[-1].completed.tokens.fork.reason == tokens_pb2.FORK_REASON_BACKEND


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "ended by the server"])
async def test_an_aborted_answer_keeps_its_tokens(streams: bool) -> None:
    server = FakeVllm(
        scale_out=not streams, script=[says("Hello there", hangs_after=4), says("two")]
    )
    async with server, serving(server, options={"keep_aborted": streams}) as service:
        talk = Dialogue(service)
        request = talk.request(user("a"))
        request.request_id = "q1"
        asked = asyncio.ensure_future(
            service.CreateResponse(request, CallContext("CreateResponse"))
        )
        async with asyncio.timeout(BOUND_S):
            await server.hanging.wait()
            for _ in range(200):  # turns of the loop, in which what was sent is read
                await asyncio.sleep(0)
            abort = model_pb2.AbortResponseRequest(request_id="q1")
            await service.AbortResponse(abort, CallContext("AbortResponse"))
            reply = await asked
        assert reply.response.status == "incomplete"
        assert reply.response.incomplete_details.reason == "aborted"
        assert ids_of(reply.tokens.output_token_ids) == server.outputs[0][:4]
        assert len(reply.tokens.logprobs) == 16
        talk.take(reply, user("a"))
        await talk.ask(user("b"))
    assert not talk.captures[1].HasField("fork")
    assert "assistant\nHello <|im_end|>\n<|im_start|>user\nb" in decode(talk.prompts[1])


async def test_a_retry_gets_the_same_sample_and_tokens() -> None:
    server = FakeVllm(script=[says("one"), says("two"), says("three")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        request = talk.request(user("b"))
        request.request_id = "q2"
        first = await service.CreateResponse(request, CallContext("CreateResponse"))
        again = await service.CreateResponse(request, CallContext("CreateResponse"))
    assert again.from_cache
    assert (again.response, again.tokens) == (first.response, first.tokens)
    assert len(server.prompts) == 2


async def test_a_conversation_too_long_is_so_when_it_goes_on() -> None:
    server = FakeVllm(context=60, script=[says("one")])
    async with server, serving(server) as service:
        assert service.kind
        talk = Dialogue(service)
        await talk.ask(user("a"))
        with pytest.raises(MeshError) as caught:
            await talk.ask(user("b" * 100))
        model = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_CONTEXT_EXCEEDED
    assert model.context_tokens == 60
    assert model.capabilities.token_ids
    assert model.capabilities.conversations


async def test_no_tokens_are_asked_for_when_none_are_wanted() -> None:
    server = FakeVllm(script=[says("one"), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        for question in ("a", "b"):
            request = talk.request(user(question))
            request.ClearField("capture")
            reply = await service.CreateResponse(request, CallContext("CreateResponse"))
            talk.calls += 1
            talk.replies.append(reply)
            assert not reply.HasField("tokens")
    body = server.requests[-1][1]
    assert not {"return_token_ids", "logprobs", "kv_transfer_params"} & set(body)
    assert [one["content"] for one in body["messages"]] == ["a", "one", "b"]


async def test_a_server_that_is_not_up_yet_is_asked_later() -> None:
    server = FakeVllm(splits=True, script=[says("one two"), says("three")])
    async with server:
        port = server.port
    async with serving(server) as service:
        server.port = port
        async with server:
            talk = Dialogue(service)
            await talk.ask(user("a"))
            await talk.ask(user("b"))
    assert not talk.captures[1].HasField("fork")


async def test_the_weights_are_those_that_the_server_names() -> None:
    async def until(version: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while (await model()).weights_version != version:  # noqa: ASYNC110 (polled, no event)
                await asyncio.sleep(0.01)

    async def model() -> Any:
        return await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))

    server = FakeVllm(weights="default")
    async with server, serving(server, options={"weights_poll_s": 0.01}) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        assert not (await model()).HasField("weights_version")
        server.weights = "7"
        await until(7)
        await talk.ask(user("b"))
        # A trainer may be ahead of what the server shows.
        ahead = model_pb2.SetWeightsVersionRequest(version=9)
        await service.SetWeightsVersion(ahead, CallContext("SetWeightsVersion"))
        await talk.ask(user("c"))
    versions = [[span.version for span in capture.weights] for capture in talk.captures]
    assert versions == [[], [7], [9]]


HOSTILE: dict[str, dict[str, Any]] = {
    "ids that are text": {"token_ids": "abc"},
    "ids that are fractions": {"token_ids": [1, 2.5]},
    "ids too large": {"token_ids": [2**40]},
    "ids that are null": {"token_ids": [None]},
    "fewer log probabilities": {"logprobs": {"content": [{"logprob": -1.0}]}},
    "log probabilities of another form": {"logprobs": {"content": [-1.0]}},
    "log probabilities that are null": {"logprobs": {"content": [{"logprob": None}]}},
    "spans of another form": {"weight_versions": [{"version": "1"}]},
    "spans that are no list": {"weight_versions": 7},
    "spans before the beginning": {"weight_versions": [{"version": "1", "start": -1}]},
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
async def test_tokens_that_are_none_are_no_answer(changes: dict[str, Any]) -> None:
    def changed(answer: dict[str, Any]) -> dict[str, Any]:
        answer["choices"][0].update(changes)
        return answer

    async with FakeVllm(alter=changed) as server, serving(server) as service:
        with pytest.raises(MeshError) as caught:
            await Dialogue(service).ask(user("a"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID


async def test_a_prompt_that_is_none_is_no_answer() -> None:
    server = FakeVllm(alter=lambda answer: {**answer, "prompt_token_ids": {"a": 1}})
    async with server, serving(server) as service:
        with pytest.raises(MeshError) as caught:
            await Dialogue(service).ask(user("a"))
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID


async def test_a_server_that_gives_no_ids_gives_an_answer() -> None:
    """Such as one before 0.10: there are no tokens, and nothing breaks."""
    server = FakeVllm(returns_ids=False, token_in=False, script=[says("one"), says("two")])
    async with server, serving(server) as service:
        talk = Dialogue(service)
        for question in ("a", "b"):
            reply = await service.CreateResponse(
                talk.request(user(question)), CallContext("CreateResponse")
            )
            talk.calls += 1
            talk.replies.append(reply)
            assert not reply.HasField("tokens")
    assert text_of(reply.response.output[0]) == "two"


async def test_a_server_that_died_between_two_calls_is_a_typed_failure() -> None:
    server = FakeVllm(splits=True, script=[says("one two")])
    async with server:
        service = ModelService(
            ModelConfig(backend="vllm", url=server.url, max_retries=0), "policy", "p-0"
        )
        await service.open(PeerDirectory())
        talk = Dialogue(service)
        await talk.ask(user("a"))
    try:
        with pytest.raises(MeshError) as caught:
            await talk.ask(user("b"))
    finally:
        await service.close()
    assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_UNREACHABLE


async def test_a_swap_inside_a_call_is_two_spans() -> None:
    def swapped(answer: dict[str, Any]) -> dict[str, Any]:
        spans = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 3}]
        answer["choices"][0]["weight_versions"] = spans
        return answer

    server = FakeVllm(alter=swapped)
    async with server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        model = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
    spans = [(span.version, span.first_token) for span in talk.captures[0].weights]
    assert spans == [(3, 0), (4, 1)]
    assert model.weights_version == 4


@pytest.mark.parametrize(
    "ends",
    [[3, 2], [10_000], [1, 2, 3, 4, 5]],
    ids=["shrinking", "beyond the tokens", "more than items"],
)
async def test_item_ends_that_cannot_be_are_refused(ends: list[int]) -> None:
    async with FakeVllm() as server, serving(server) as service:
        talk = Dialogue(service)
        await talk.ask(user("a"))
        talk.ends = ends
        with pytest.raises(MeshError) as caught:
            await talk.ask(user("b"), whole=True)
    assert caught.value.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
    assert caught.value.metadata["field"] == "conversation.prefix_tokens.item_ends"


@pytest.mark.parametrize(
    ("mode", "distribution"),
    [
        ("processed_logprobs", tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING),
        ("raw_logprobs", tokens_pb2.LOGPROB_DISTRIBUTION_RAW),
        ("raw_logits", tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED),
        ("", tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED),
    ],
)
async def test_the_distribution_of_log_probabilities_is_what_the_server_shows(
    mode: str, distribution: tokens_pb2.LogprobDistribution.ValueType
) -> None:
    server = FakeVllm(logprobs_mode=mode, script=list(SCRIPT))
    async with server, serving(server) as service:
        talk = Dialogue(service, tools=[TOOL])
        await three_turns(talk)
        model = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
    assert [one.logprob_distribution for one in talk.captures] == [distribution] * 3
    assert model.capabilities.logprob_distribution == distribution
    assert model.capabilities.append_only


async def test_without_log_probabilities_there_is_no_distribution() -> None:
    server = FakeVllm(logprobs_mode="raw_logprobs")
    async with server, serving(server) as service:
        request = Dialogue(service).request(user("a"))
        request.capture.logprobs = False
        reply = await service.CreateResponse(request, CallContext("CreateResponse"))
    assert not reply.tokens.logprobs
    assert not reply.tokens.logprob_distribution


_FORM = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("params", "bound"),
    [
        ({}, False),
        ({"tool_choice": "auto"}, False),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": {"type": "function", "name": "add"}}, True),
        ({"text": {"format": {"type": "text"}}}, False),
        ({"text": {"format": {"type": "json_object"}}}, True),
        ({"text": {"format": _FORM}}, True),
        ({"structured_outputs": {"regex": "a*"}}, True),
        ({"guided_json": {"type": "object"}}, True),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_what_a_grammar_bound_is_marked(
    params: dict[str, Any], bound: bool, streams: bool
) -> None:
    server = FakeVllm(script=[says("one two")])
    async with server, serving(server) as service:
        request = Dialogue(service, tools=[TOOL]).request(user("a"), **params)
        if streams:
            asked = model_pb2.StreamResponseRequest(call=request)
            stream = service.StreamResponse(asked, CallContext("StreamResponse"))
            reply = [frame async for frame in stream][-1].completed
        else:
            reply = await service.CreateResponse(request, CallContext("CreateResponse"))
    spans = [(one.first_token, one.tokens, one.constraint) for one in reply.tokens.constrained]
    whole = (0, len(ids_of(reply.tokens.output_token_ids)), tokens_pb2.CONSTRAINT_GRAMMAR)
    assert spans == ([whole] if bound else [])

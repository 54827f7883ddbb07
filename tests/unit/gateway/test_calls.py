"""Calls of programs through the gateway, by OpenAI's own client and by plain HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.gateway import metrics, replies
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_responses import loads, params_to_dict, text_of
from gymmesh_runtime.errors import MeshError, Reason, from_status
from tests.unit.agent.mesh import ask
from tests.unit.agent.servicers import call, calls, says
from tests.unit.agent.streams import model_calls
from tests.unit.gateway.programs import chat, client, posting, run, serving

TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
FLAT_TOOL: Any = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object"},
    "strict": False,
}
Stops = rollout_pb2.StopReason


async def chat_session(gateway: Gateway, *, stream: bool) -> list[str]:
    """A tool call and an answer over Chat Completions; the texts that it was shown."""
    seen: list[str] = []
    messages: list[Any] = [{"role": "user", "content": "2+2?"}]
    async with client(gateway) as openai_client:
        for _ in range(2):
            if stream:
                manager = openai_client.chat.completions.stream(
                    model="m", messages=messages, tools=[TOOL]
                )
                async with manager as events:
                    completion: Any = await events.get_final_completion()
            else:
                completion = await openai_client.chat.completions.create(
                    model="m", messages=messages, tools=[TOOL]
                )
            message = completion.choices[0].message
            seen.append(message.content or "")
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            for function in message.tool_calls or ():
                messages.append({"role": "tool", "tool_call_id": function.id, "content": "4"})
    return seen


@pytest.mark.parametrize("stream", [False, True])
async def test_a_session_over_chat_completions(stream: bool) -> None:
    seen: list[str] = []

    async def program(gateway: Gateway) -> None:
        seen.extend(await chat_session(gateway, stream=stream))

    events = await run(program, calls(call("add", '{"a": 2}')), says("four"))
    assert seen == ["", "four"]
    first, second = model_calls(events)
    assert (first.detached, first.link) == (True, rollout_pb2.CALL_LINK_CONTINUATION)
    assert (second.parent_call_id, second.detached) == (first.call_id, False)
    assert second.link == rollout_pb2.CALL_LINK_CONTINUATION
    # Only what is new: the tool's output.
    (new,) = second.context_items
    assert new.function_call_output.text == b"4"
    assert events[-1].completed.stop_reason == Stops.STOP_REASON_PROGRAM_EXITED
    assert events[-1].completed.counts.model_calls == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_session_over_responses(stream: bool) -> None:
    seen: list[str] = []

    async def program(gateway: Gateway) -> None:
        items: list[Any] = [{"role": "user", "content": "2+2?"}]
        async with client(gateway) as openai_client:
            for _ in range(2):
                if stream:
                    manager = openai_client.responses.stream(
                        model="m", input=items, tools=[FLAT_TOOL], instructions="Be brief."
                    )
                    async with manager as events:
                        response: Any = await events.get_final_response()
                else:
                    response = await openai_client.responses.create(
                        model="m", input=items, tools=[FLAT_TOOL], instructions="Be brief."
                    )
                seen.append(response.output_text)
                for item in response.output:
                    items.append(item.model_dump(exclude_none=True, exclude={"parsed_arguments"}))
                    if item.type == "function_call":
                        output = {"type": "function_call_output", "call_id": item.call_id}
                        items.append({**output, "output": "4"})

    events = await run(program, calls(call("add", '{"a": 2}')), says("four"))
    assert seen == ["", "four"]
    first, second = model_calls(events)
    assert (second.parent_call_id, len(second.context_items)) == (first.call_id, 1)


async def test_the_key_may_be_in_the_path() -> None:
    async def program(gateway: Gateway) -> None:
        path = gateway.keyed_url.removeprefix(gateway.url) + "/v1/chat/completions"
        async with posting(gateway, chat(("user", "hi")), key="", path=path) as response:
            assert response.status == 200
            document = await response.json()
            assert document["choices"][0]["message"]["content"] == "x"

    assert len(model_calls(await run(program, says("x")))) == 1


async def test_other_keys_open_nothing() -> None:
    old: list[str] = []

    async def program(gateway: Gateway) -> None:
        bodies = set()
        for key in ("", "sk-gymmesh-" + "0" * 32, *old):
            async with posting(gateway, chat(("user", "hi")), key=key) as response:
                assert response.status == 401
                bodies.add(await response.text())
        assert len(bodies) == 1  # no hint at what is wrong with a key
        assert gateway.key not in str(bodies)
        old.append(gateway.key)

    async with serving(program, says("x")) as mesh:
        for number in (1, 2):  # the second tries the first one's key
            request = ask()
            request.rollout_id = f"r{number}"
            events = await mesh.run(request)
            assert events[-1].HasField("completed")
            assert not model_calls(events)


async def test_the_runs_parameters_win_and_both_are_recorded() -> None:
    async def program(gateway: Gateway) -> None:
        body = chat(("user", "hi"), temperature=1.0, top_p=0.9)
        async with posting(gateway, body) as response:
            assert response.status == 200

    async with serving(program, says("x")) as mesh:
        events = await mesh.run()
        params = params_to_dict(mesh.model.requests[0].params)
    assert (params["temperature"], params["top_p"]) == (0.5, 0.9)
    (made,) = model_calls(events)
    assert loads(made.replaced_params_json) == {"temperature": 1.0}


async def test_a_limit_of_the_policy_stops_the_program() -> None:
    async def program(gateway: Gateway) -> None:
        async with client(gateway) as openai_client:
            messages: list[Any] = [{"role": "user", "content": "hi"}]
            await openai_client.chat.completions.create(model="m", messages=messages)
            messages.append({"role": "user", "content": "more"})
            with pytest.raises(openai.AuthenticationError):
                await openai_client.chat.completions.create(model="m", messages=messages)
            with pytest.raises(openai.AuthenticationError):
                await openai_client.chat.completions.create(model="m", messages=messages)

    events = await run(program, says("x"), options={"max_steps": 1})
    assert events[-1].completed.stop_reason == Stops.STOP_REASON_MAX_STEPS
    assert len(model_calls(events)) == 1


async def test_max_steps_counts_the_calls_of_every_conversation() -> None:
    answered: list[int] = []

    async def program(gateway: Gateway) -> None:
        for number in range(4):
            async with posting(gateway, chat(("user", f"task {number}"))) as response:
                answered.append(response.status)

    events = await run(program, says("x"), repeat=True, options={"max_steps": 2})
    assert answered == [200, 200, 401, 401]
    assert events[-1].completed.stop_reason == Stops.STOP_REASON_MAX_STEPS
    assert [made.actor for made in model_calls(events)] == ["", "conversation-1"]


async def test_a_side_call_is_no_step() -> None:
    async def program(gateway: Gateway) -> None:
        title = chat(("system", "You are a title generator."), ("user", "2+2?"))
        for body in (title, chat(("user", "2+2?"))):
            opencode = {"User-Agent": "opencode/1.18.33"}
            async with posting(gateway, body, headers=opencode) as response:
                assert response.status == 200

    events = await run(program, says("x"), repeat=True, options={"max_steps": 1})
    assert [made.side_call for made in model_calls(events)] == ["title", ""]


async def test_a_failed_model_fails_the_rollout_whatever_the_program_says() -> None:
    async def program(gateway: Gateway) -> None:
        async with posting(gateway, chat(("user", "hi"))) as response:
            assert response.status == 401  # it would be tried again otherwise

    events = await run(program, MeshError(Reason.ERROR_REASON_MODEL_SERVER_ERROR, "it is down"))
    failure = events[-1].failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_MODEL
    assert from_status(failure.status).reason == Reason.ERROR_REASON_MODEL_SERVER_ERROR


async def test_a_program_that_fails_by_the_error_hides_no_cause() -> None:
    async def program(gateway: Gateway) -> None:
        async with client(gateway) as openai_client:
            await openai_client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}]
            )

    events = await run(program, MeshError(Reason.ERROR_REASON_MODEL_SERVER_ERROR, "it is down"))
    assert events[-1].failed.failure.boundary == rollout_pb2.BOUNDARY_MODEL


async def test_a_program_that_does_not_stop_is_cancelled() -> None:
    async def program(gateway: Gateway) -> None:
        async with posting(gateway, chat(("user", "hi"))) as response:
            assert response.status == 401
        await asyncio.Event().wait()

    error = MeshError(Reason.ERROR_REASON_MODEL_SERVER_ERROR, "it is down")
    events = await run(program, error, stop_s=0.05)
    assert events[-1].failed.failure.boundary == rollout_pb2.BOUNDARY_MODEL


async def test_a_conversation_that_is_too_long_can_be_shortened() -> None:
    too_long = MeshError(Reason.ERROR_REASON_MODEL_CONTEXT_EXCEEDED, "too long")

    async def shortens(gateway: Gateway) -> None:
        async with posting(gateway, chat(("user", "long"))) as response:
            assert response.status == 400
            assert "context" in await response.text()
        async with posting(gateway, chat(("user", "short"))) as response:
            assert response.status == 200

    events = await run(shortens, too_long, says("x"))
    assert events[-1].completed.stop_reason == Stops.STOP_REASON_PROGRAM_EXITED

    async def gives_up(gateway: Gateway) -> None:
        async with posting(gateway, chat(("user", "long"))) as response:
            assert response.status == 400

    events = await run(gives_up, too_long)
    assert events[-1].completed.stop_reason == Stops.STOP_REASON_CONTEXT_LENGTH

    async def insists(gateway: Gateway) -> None:
        for _ in range(50):
            async with posting(gateway, chat(("user", "long"))) as response:
                assert response.status in (400, 401)

    async with serving(insists, too_long, repeat=True) as mesh:
        events = await mesh.run(ask(max_steps=100))
        assert len(mesh.model.requests) == 16
    assert events[-1].completed.stop_reason == Stops.STOP_REASON_CONTEXT_LENGTH


async def test_models_and_counts_make_no_call() -> None:
    async def program(gateway: Gateway) -> None:
        async with client(gateway) as openai_client:
            assert [model.id async for model in openai_client.models.list()] == ["policy"]
        body = {"model": "m", "messages": [{"role": "user", "content": "hello " * 40}]}
        path = "/v1/messages/count_tokens"
        async with posting(gateway, body, path=path) as response:
            assert response.status == 200
            assert 10 < (await response.json())["input_tokens"] < 400

    assert not model_calls(await run(program, says("x")))


async def test_a_cut_stream_is_answered_again_and_not_sampled_twice() -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        asked.set()
        await may_answer.wait()
        return says("once")

    async def program(gateway: Gateway) -> None:
        body = chat(("user", "hi"), stream=True)
        async with posting(gateway, body) as response:
            await asked.wait()
            assert response.status == 200
            assert await response.content.readline()  # a keep-alive, then the program is cut
        may_answer.set()
        async with posting(gateway, chat(("user", "hi"))) as response:
            document = await response.json()
            assert document["choices"][0]["message"]["content"] == "once"

    async with serving(program, slow, keep_alive_s=0.05) as mesh:
        events = await mesh.run()
        assert len(mesh.model.requests) == 1
    assert len(model_calls(events)) == 1


async def test_equal_requests_at_a_time_are_two_samples() -> None:
    """Sub-agents that run side by side may begin with equal prompts."""
    both_asked, asked = asyncio.Event(), 0

    async def slow(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        nonlocal asked
        asked += 1
        mine = asked
        if asked == 2:
            both_asked.set()
        await both_asked.wait()
        return says(f"answer {mine}")

    async def one(gateway: Gateway) -> str:
        async with posting(gateway, chat(("user", "hi"))) as response:
            return str((await response.json())["choices"][0]["message"]["content"])

    async def program(gateway: Gateway) -> None:
        async with asyncio.timeout(60):
            answers = await asyncio.gather(one(gateway), one(gateway))
        assert sorted(answers) == ["answer 1", "answer 2"]

    made = model_calls(await run(program, slow, repeat=True))
    first, second = sorted(made, key=lambda call: call.call_id)
    assert first.link == rollout_pb2.CALL_LINK_CONTINUATION
    assert second.fork.reason == tokens_pb2.FORK_REASON_BRANCH


async def arrived(gateway: Gateway, writer: asyncio.StreamWriter) -> None:
    """Wait until the request on a connection waits for its answer."""
    own = writer.get_extra_info("sockname")
    callers = gateway._session._callers
    while own not in [one.get_extra_info("peername") for one in callers]:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def test_a_retry_on_another_connection_right_after_the_hang_up_is_no_second_sample() -> None:
    may_answer = asyncio.Event()

    async def slow(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        await may_answer.wait()
        return says("once")

    async def program(gateway: Gateway) -> None:
        body = json.dumps(chat(("user", "hi"))).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {gateway.key}\r\n"
            f"Host: x\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        host, _, port = gateway.url.removeprefix("http://").rpartition(":")
        _, now = await asyncio.open_connection(host, int(port))
        for _ in range(4):
            _, pooled = await asyncio.open_connection(host, int(port))
            now.write(head.encode() + body)
            await arrived(gateway, now)
            now.transport.abort()
            now = pooled
        now.write(head.encode() + body)
        await arrived(gateway, now)
        now.transport.abort()
        may_answer.set()
        async with posting(gateway, chat(("user", "hi"))) as response:
            assert response.status == 200

    async with serving(program, slow, repeat=True) as mesh:
        async with asyncio.timeout(60):
            events = await mesh.run()
        assert len(mesh.model.requests) == 1
    assert len(model_calls(events)) == 1


async def test_parallel_conversations_do_not_mix() -> None:
    async def echo(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        await asyncio.sleep(0)
        return says(text_of(request.params.input[-1]).upper())

    async def talk(gateway: Gateway, name: str) -> None:
        messages: list[tuple[str, str]] = []
        for turn in range(6):
            messages.append(("user", f"{name}{turn}"))
            async with posting(gateway, chat(*messages)) as response:
                answer = (await response.json())["choices"][0]["message"]["content"]
            assert answer == f"{name}{turn}".upper()
            messages.append(("assistant", answer))

    async def program(gateway: Gateway) -> None:
        await asyncio.gather(*(talk(gateway, name) for name in "abcdefgh"))

    async with serving(program, echo, repeat=True) as mesh:
        events = await mesh.run(ask(max_steps=100))
    made = {one.call_id: one for one in model_calls(events)}
    assert len(made) == 48
    roots = [one for one in made.values() if not one.parent_call_id]
    assert len(roots) == 8
    for one in made.values():
        if one.parent_call_id:
            (new,) = one.context_items
            before = text_of(made[one.parent_call_id].response.output[0])
            assert before[0].lower() == text_of(new)[0]


async def test_the_key_is_in_no_event() -> None:
    keys: list[str] = []

    async def program(gateway: Gateway) -> None:
        keys.append(gateway.key)
        async with posting(gateway, chat(("user", "hi"))) as response:
            assert response.status == 200
        assert gateway.redact(b"KEY=" + gateway.key.encode() + b"\n") == b"KEY=***\n"

    events = await run(program, says("x"))
    assert not any(keys[0].encode() in event.SerializeToString() for event in events)


async def test_a_rollout_that_is_over_ends_its_calls() -> None:
    asked = asyncio.Event()
    seen: list[str] = []

    async def never(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def program(gateway: Gateway) -> None:
        try:
            async with posting(gateway, chat(("user", "hi"), stream=True)) as response:
                seen.append(str(response.status))
        finally:
            seen.append("cancelled")

    async with serving(program, never) as mesh:
        events = await mesh.run(ask(max_wall_s=0.5))
        assert mesh.model.cancelled == 1
        assert not mesh.service._gateway._sessions
    assert events[-1].failed.failure.boundary == rollout_pb2.BOUNDARY_BUDGET
    assert seen[-1] == "cancelled"


async def test_a_program_that_ends_leaves_no_call_behind() -> None:
    asked = asyncio.Event()

    async def never(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def hang(gateway: Gateway) -> int:
        async with posting(gateway, chat(("user", "hi"))) as response:
            return response.status

    left: list[asyncio.Task[int]] = []

    async def program(gateway: Gateway) -> None:
        left.append(asyncio.create_task(hang(gateway)))
        await asked.wait()

    async with serving(program, never) as mesh:
        events = await mesh.run()
        assert mesh.model.cancelled == 1
        assert await left[0] == 401  # it outlives its rollout, and is stopped
    assert events[-1].completed.stop_reason == Stops.STOP_REASON_PROGRAM_EXITED


async def test_what_is_counted() -> None:
    def count(dialect: str, outcome: str) -> float:
        return metrics.GATEWAY_REQUESTS.labels("tool_loop", dialect, outcome).value

    places = [("chat", "answered"), ("chat", "unauthorized"), ("chat", "invalid")]
    before = [count(*place) for place in places]

    async def program(gateway: Gateway) -> None:
        for body, key in (
            (chat(("user", "hi")), None),
            (chat(("user", "hi")), "sk-gymmesh-wrong"),
            ({}, None),
        ):
            async with posting(gateway, body, key=key) as response:
                await response.read()
        assert metrics.GATEWAY_CONNECTIONS.labels("tool_loop").value >= 1

    await run(program, says("x"))
    assert [count(*place) for place in places] == [number + 1 for number in before]


async def test_the_registry_lists_the_gateway() -> None:
    async def program(gateway: Gateway) -> None:
        assert gateway.network().relay.address_key == "gateway"
        assert gateway.network().relay.name == "tool_loop"

    async with serving(program, says("x")) as mesh:
        listed = mesh.service.meta["gateway"]
        await mesh.run()
        assert mesh.service.meta["gateway"] == listed
        assert mesh.environment.created[0].agent == "tool_loop"
        assert mesh.environment.created[0].agent_instance_id == "tool_loop-0"


ELSEWHERE: list[tuple[str, Any, str, tuple[Any, ...]]] = [
    (
        "/v1/messages",
        {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]},
        "x-api-key",
        ("content", 0, "text"),
    ),
    (
        "/v1beta/models/m:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
        "x-goog-api-key",
        ("candidates", 0, "content", "parts", 0, "text"),
    ),
]


@pytest.mark.parametrize(("path", "body", "header", "place"), ELSEWHERE)
async def test_other_dialects_with_their_own_headers(
    path: str, body: Any, header: str, place: tuple[Any, ...]
) -> None:
    async def program(gateway: Gateway) -> None:
        keyed = {header: gateway.key}
        async with posting(gateway, body, key="", path=path, headers=keyed) as response:
            assert response.status == 200
            found = await response.json()
            for key in place:
                found = found[key]
            assert found == "hello"
        wrong = {header: "sk-gymmesh-wrong"}
        async with posting(gateway, body, key="", path=path, headers=wrong) as response:
            assert response.status == 401
            assert "error" in await response.json()

    assert len(model_calls(await run(program, says("hello")))) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_cut_in_the_middle_was_not_delivered(stream: bool) -> None:
    long = "word " * 4_000_000  # more than sockets hold

    async def program(gateway: Gateway) -> None:
        body = chat(("user", "hi"), stream=stream)
        async with posting(gateway, body) as response:
            assert await response.content.read(1000)
            response.close()
        while gateway._session.connections.answering:  # noqa: ASYNC110 (the server has no event for it)
            await asyncio.sleep(0.005)
        async with posting(gateway, chat(("user", "hi"))) as response:
            document = await response.json()
            assert document["choices"][0]["message"]["content"] == long

    async with serving(program, says(long), says("another")) as mesh:
        events = await mesh.run()
        assert len(mesh.model.requests) == 1
    assert len(model_calls(events)) == 1


async def test_after_a_whole_answer_the_same_request_is_another_sample() -> None:
    async def program(gateway: Gateway) -> None:
        for expected in ("one", "two"):
            async with posting(gateway, chat(("user", "hi"))) as response:
                document = await response.json()
                assert document["choices"][0]["message"]["content"] == expected

    assert len(model_calls(await run(program, says("one"), says("two")))) == 2


async def test_a_stream_that_has_begun_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "_BEGIN_S", 0.01)
    begun = asyncio.Event()

    async def fails(request: model_pb2.CreateResponseRequest) -> responses_pb2.Response:
        await begun.wait()
        raise MeshError(Reason.ERROR_REASON_MODEL_SERVER_ERROR, "it is down")

    async def program(gateway: Gateway) -> None:
        async with posting(gateway, chat(("user", "hi"), stream=True)) as response:
            assert response.status == 200
            assert await response.content.readline()
            begun.set()
            rest = await response.content.read()
            assert b"error" in rest
            assert b"it is down" not in rest  # what failed is not the program's to know

    events = await run(program, fails)
    assert events[-1].failed.failure.boundary == rollout_pb2.BOUNDARY_MODEL

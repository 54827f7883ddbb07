"""Images that programs send: recorded once, whatever the dialect, and shown to the model whole."""

from __future__ import annotations

from typing import Any

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_responses import image_urls, media_urls
from tests.support.images import png, png_url
from tests.unit.agent.mesh import ask
from tests.unit.agent.servicers import says
from tests.unit.agent.streams import model_calls
from tests.unit.gateway.programs import posting, serving

DATA = png_url(1).partition(",")[2]
SOURCE = {"type": "base64", "media_type": "image/png", "data": DATA}
ROUNDS = 5


def bodies(number: int) -> list[tuple[str, Any]]:
    """A new conversation of each dialect with the same image."""
    text = f"What is it, {number}?"
    return [
        (
            "/v1/responses",
            {"model": "m", "input": [{"role": "user", "content": [
                {"type": "input_text", "text": f"{text} (responses)"},
                {"type": "input_image", "image_url": png_url(1)}]}]},
        ),
        (
            "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": [
                {"type": "text", "text": f"{text} (chat)"},
                {"type": "image_url", "image_url": {"url": png_url(1)}}]}]},
        ),
        (
            "/v1/messages",
            {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [
                {"type": "text", "text": f"{text} (messages)"},
                {"type": "image", "source": SOURCE}]}]},
        ),
        (
            "/v1beta/models/m:generateContent",
            {"contents": [{"role": "user", "parts": [
                {"text": f"{text} (gemini)"},
                {"inlineData": {"mimeType": "image/png", "data": DATA}}]}]},
        ),
    ]  # fmt: skip


def urls_of(items: Any) -> list[str]:
    found: list[responses_pb2.Item] = list(items)
    return [url for item in found for url in image_urls(item)]


async def test_an_image_is_recorded_once_whatever_sends_it() -> None:
    async def program(gateway: Gateway) -> None:
        for number in range(ROUNDS):
            for path, body in bodies(number):
                async with posting(gateway, body, path=path) as response:
                    assert response.status == 200, await response.text()

    async with serving(program, says("a cat"), repeat=True) as mesh:
        events = await mesh.run(ask(max_steps=4 * ROUNDS + 1))
        sent = [urls_of(one.params.input) for one in mesh.model.requests]
    assert sent == [[png_url(1)]] * (4 * ROUNDS)
    media = [one.media_added.media for one in events if one.HasField("media_added")]
    assert [one.data for one in media] == [png(1)]
    (name,) = media_urls(media)
    calls = model_calls(events)
    assert [urls_of(one.context_items) for one in calls] == [[name]] * (4 * ROUNDS)
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED


async def test_a_conversation_with_an_image_goes_on() -> None:
    """A program sends the whole again: what is known stays known, images included."""

    async def program(gateway: Gateway) -> None:
        messages: list[Any] = bodies(0)[1][1]["messages"]
        for _ in range(ROUNDS):
            body = {"model": "m", "messages": messages}
            async with posting(gateway, body) as response:
                answer = (await response.json())["choices"][0]["message"]
            messages = [*messages, answer, {"role": "user", "content": "and now?"}]

    async with serving(program, says("a cat"), repeat=True) as mesh:
        events = await mesh.run(ask())
        sent = [urls_of(one.params.input) for one in mesh.model.requests]
    calls = model_calls(events)
    assert len(calls) == ROUNDS
    assert [one.link for one in calls] == [rollout_pb2.CALL_LINK_CONTINUATION] * ROUNDS
    assert [len(urls_of(one.context_items)) for one in calls] == [1] + [0] * (ROUNDS - 1)
    assert png_url(1) in sent[0]

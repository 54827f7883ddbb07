"""Answers of a model, and small clients that put a stream together again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from gymmesh_agent.gateway.request import GatewayAnswer
from gymmesh_responses import response_from_json

Json = dict[str, Any]

TAG = "01234567"


def answer_of(output: list[Json], **response: Any) -> GatewayAnswer:
    """The answer to the call c1 with this output."""
    document = {"model": "policy", "status": "completed", "output": output, **response}
    return GatewayAnswer(
        tag=TAG, call_id="c1", response=response_from_json(document), created=1_700_000_000
    )


def message(*texts: str, status: str = "completed") -> Json:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": status,
        "content": parts,
    }


def call(name: str, arguments: str) -> Json:
    return {
        "type": "function_call",
        "id": "f",
        "call_id": "recorded",
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def reasoning(*texts: str) -> Json:
    parts = [{"type": "reasoning_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "r", "summary": [], "content": parts}


_text = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.text("ab \n", min_size=4090, max_size=4100),
    st.sampled_from(["a" * 9000, "\ud800", '"', "data: x\n\nevent: y"]),
)
_arguments = st.one_of(
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3).map(json.dumps),
    st.sampled_from(["", "{}", " { } ", '{"a": 1e400}', "[1]", "no", '{"a": 1', "null"]),
    _text,
)
outputs = st.lists(
    st.one_of(
        st.builds(message, _text),
        st.builds(message, _text, _text),
        st.builds(call, st.sampled_from(["bash", "mcp__files__read", "é"]), _arguments),
        st.builds(reasoning, _text),
        st.just({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "secret"}),
        st.just(
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]},
        ),
        st.just({"type": "web_search_call", "id": "w", "status": "completed"}),
        st.just({"type": "custom_tool_call", "call_id": "x", "name": "patch", "input": "text"}),
        st.just(
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "refusal", "refusal": "no"}],
            }
        ),
    ),
    max_size=5,
)
"""What a model service may answer."""


def events(stream: Iterable[bytes]) -> list[tuple[str, Any]]:
    """The events of a stream: name and parsed data, `[DONE]` as it is.

    Each piece of the stream must be a whole number of events.
    """
    found: list[tuple[str, Any]] = []
    for piece in stream:
        assert piece.endswith(b"\n\n")
        for block in piece.decode().split("\n\n")[:-1]:
            name, data = "", None
            for line in block.split("\n"):
                key, _, value = line.partition(": ")
                assert key in ("event", "data"), line
                if key == "event":
                    name = value
                else:
                    data = value if value == "[DONE]" else json.loads(value)
            found.append((name, data))
    return found


def chat_whole(stream: Iterable[bytes]) -> Json:
    """The message that the chunks of a chat answer add up to."""
    made: Json = {"content": "", "reasoning_content": "", "refusal": "", "tool_calls": []}
    found = events(stream)
    assert found[-1] == ("", "[DONE]")
    for _, chunk in found[:-1]:
        assert chunk["object"] == "chat.completion.chunk"
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for key in ("content", "reasoning_content", "refusal"):
                made[key] += delta.get(key) or ""
            for one in delta.get("tool_calls", []):
                _add_call(made["tool_calls"], one)
            made["finish_reason"] = choice["finish_reason"]
        made["usage"] = chunk.get("usage")
    return made


def _add_call(calls: list[Json], delta: Json) -> None:
    if delta["index"] == len(calls):
        calls.append({key: value for key, value in delta.items() if key != "index"})
        return
    kind = calls[delta["index"]]["type"]
    for key, value in delta[kind].items():
        calls[delta["index"]][kind][key] += value


def anthropic_whole(stream: Iterable[bytes]) -> Json:
    """The message that the events of an Anthropic answer add up to."""
    made: Json = {}
    partial = ""
    for name, event in events(stream):
        assert event["type"] == name
        if name == "message_start":
            made = event["message"]
        elif name == "content_block_start":
            assert event["index"] == len(made["content"])
            made["content"].append(event["content_block"])
            partial = ""
        elif name == "content_block_delta":
            block, delta = made["content"][event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                partial += delta["partial_json"]
            else:
                key = {"text_delta": "text", "thinking_delta": "thinking"}.get(
                    delta["type"], "signature"
                )
                block[key] += delta[key]
        elif name == "content_block_stop":
            if made["content"][-1]["type"] == "tool_use":
                made["content"][-1]["input"] = json.loads(partial)
        elif name == "message_delta":
            made.update(event["delta"])
            made["usage"].update(event["usage"])
        else:
            assert name == "message_stop"
    return made


def gemini_whole(stream: Iterable[bytes]) -> Json:
    """The answer that the events of a Gemini stream add up to."""
    made: Json = {}
    parts: list[Json] = []
    for _, event in events(stream):
        candidate = event["candidates"][0]
        assert candidate["content"]["role"] == "model"
        for part in candidate["content"]["parts"]:
            if parts and _continues(parts[-1], part):
                parts[-1] = {**part, "text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        made = event
    made["candidates"][0]["content"]["parts"] = parts
    return made


def _continues(part: Json, following: Json) -> bool:
    return (
        "text" in part
        and "text" in following
        and "thoughtSignature" not in part
        and part.get("thought") == following.get("thought")
    )


def responses_whole(stream: Iterable[bytes]) -> tuple[Json, list[Json]]:
    """The last event's response, and the output that the events before it add up to."""
    output: list[Json] = []
    found = events(stream)
    for number, (name, event) in enumerate(found):
        assert event["type"] == name
        assert event["sequence_number"] == number
        if name == "response.output_item.added":
            assert event["output_index"] == len(output)
            output.append(event["item"])
        elif name == "response.output_item.done":
            output[event["output_index"]]["status"] = event["item"].get("status")
            assert _without_status(output[-1]) == _without_status(event["item"])
        elif "output_index" in event:
            assert event["item_id"] == output[-1].get("id", "")
            _add_event(output[-1], name, event)
    assert [name for name, _ in found[:2]] == ["response.created", "response.in_progress"]
    return found[-1][1]["response"], output


def _without_status(item: Json) -> Json:
    return {key: value for key, value in item.items() if key != "status"}


def _add_event(item: Json, name: str, event: Json) -> None:
    if name == "response.content_part.added":
        item["content"].append(event["part"])
    elif name == "response.content_part.done":
        part = item["content"][event["content_index"]]
        assert part.get("text") == event["part"].get("text")
        item["content"][event["content_index"]] = event["part"]
    elif name == "response.output_text.delta":
        item["content"][event["content_index"]]["text"] += event["delta"]
    elif name == "response.refusal.delta":
        item["content"][event["content_index"]]["refusal"] += event["delta"]
    elif name == "response.function_call_arguments.delta":
        item["arguments"] += event["delta"]
    elif name == "response.reasoning_summary_part.added":
        item["summary"].append(event["part"])
    elif name == "response.reasoning_summary_text.delta":
        item["summary"][event["summary_index"]]["text"] += event["delta"]
    elif name == "response.reasoning_text.delta":
        if event["content_index"] == len(item["content"]):
            item["content"].append({"type": "reasoning_text", "text": ""})
        item["content"][event["content_index"]]["text"] += event["delta"]
    elif name == "response.reasoning_text.done" and not event["text"]:
        item["content"].append({"type": "reasoning_text", "text": ""})
    else:
        assert name.endswith(".done"), name

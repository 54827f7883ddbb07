"""Whatever a caller or an endpoint sends ends in a result or a typed error, never in a crash."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.backends.answers.chat_stream import ChatFold
from gymmesh_model.backends.answers.responses import read_response
from gymmesh_model.backends.calls.progress import CallProgress
from gymmesh_model.backends.chat import ChatReader, read_answer, respond
from gymmesh_model.backends.replay.recording import Recording, RecordingError, read_row
from gymmesh_model.convert import to_chat
from gymmesh_responses import dumps, loads, response_to_json
from gymmesh_runtime.errors import MeshError
from tests.support import endpoint

Json = dict[str, Any]

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT: Json = {
    "id": "x",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "message": {
                "content": [{"type": "text", "text": "t"}],
                "refusal": "no",
                "reasoning_content": "hm",
                "annotations": [{"type": "a", "a": {"b": 1}}],
                "tool_calls": [CALL],
                "function_call": {"name": "f", "arguments": "{}"},
            },
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "t"}]},
        }
    ],
    "usage": {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "total_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 1},
    },
    "service_tier": "x",
    "error": None,
}
PARAMS: Json = {
    "model": "m",
    "instructions": "i",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "low"}]},
        {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": None}],
    "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 1,
    "truncation": "disabled",
    "background": False,
}
RESPONSE: Json = {
    "id": "r",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "output": [{"type": "message", "role": "assistant", "content": []}],
    "usage": {"input_tokens": 1},
}
ROW: Json = {
    "match": ["q"],
    "repeat": 0,
    "answers": [
        {
            "output": [{"type": "function_call", "name": "f"}],
            "status": "completed",
            "delay_s": 0,
            "error": {"reason": "MODEL_TIMEOUT", "times": 1, "retry_after_s": 1, "metadata": {}},
        }
    ],
}
ROLLOUT: Json = {"responses_create_params": PARAMS, "response": RESPONSE, "repeat_index": 0}


@st.composite
def damaged(draw: st.DrawFn, document: Json) -> Any:
    """The document with up to two places replaced by junk."""
    made: Any = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        place: Any = made
        while isinstance(place, dict | list) and place:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys))
            if not isinstance(place[key], dict | list) or draw(st.booleans()):
                place[key] = draw(junk)
                break
            place = place[key]
    return made


@given(damaged(CHAT))
def test_chat_answers(answer: Any) -> None:
    with contextlib.suppress(MeshError):
        respond("policy", read_answer("policy", dumps(answer)), PARAMS)


# What a policy may write: any text, also what no JSON or UTF-8 can hold, numbers beyond every type,
# brackets deeper than any stack; and nothing.
WRITTEN = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(
    ("", "\x00\x1b[2J", "\ud83d", "9" * 5_000, "-1e999", "NaN", "[" * 5_000, '{"a":' * 2_000,
     "<think>", "</think>", "data: [DONE]\n\n", '{"a":1', "null", "\u2028\x85")
)  # fmt: skip
CALLS = st.lists(st.tuples(st.sampled_from(["c", "d", ""]), WRITTEN, WRITTEN), max_size=3)


@given(WRITTEN, CALLS, st.sampled_from(["stop", "length"]))
def test_whatever_the_policy_wrote_is_kept_as_it_is(
    said: str, calls: list[tuple[str, str, str]], finish: str
) -> None:
    """Be it a name, arguments or text: it is no failure of the endpoint, streamed or whole."""
    made = endpoint._chat_document({}, said, calls, None, finish, (1, 1))
    wanted = [(name, arguments) for _, name, arguments in calls]
    whole = respond("policy", read_answer("policy", json.dumps(made).encode()), PARAMS)
    native = endpoint._responses_document({}, said, calls, None, finish, (1, 1))
    read = [whole, read_response("policy", (), json.dumps(native).encode())]
    progress = CallProgress()
    reader = ChatReader("policy", ChatFold(progress), PARAMS, progress)
    for chunk in endpoint.chat_chunks(made, 900):
        reader.feed(json.dumps(chunk).encode())
    reader.end()
    read.append(reader.respond())
    for response in read:
        output = loads(response_to_json(response))["output"]
        texts = [part["text"] for one in output for part in one.get("content", [])]
        assert "".join(texts) == said
        got = [(one["name"], one["arguments"]) for one in output if "arguments" in one]
        assert got == wanted


@pytest.mark.parametrize("deep", [300, 700])
def test_parsed_arguments_may_be_as_deep_as_the_policy_wrote_them(deep: int) -> None:
    arguments = "[" * deep + "]" * deep
    raw = json.dumps(CHAT).replace('"arguments": "{}"', f'"arguments": {arguments}')
    made = respond("policy", read_answer("policy", raw.encode()), PARAMS)
    calls = [one.function_call for one in made.output if one.HasField("function_call")]
    assert [call.arguments.decode() for call in calls] == [arguments]


@pytest.mark.parametrize(("name", "kept"), [(None, ""), ("", ""), (5, "5"), ({"a": 1}, '{"a":1}')])
def test_a_name_that_is_none_is_the_policys_mistake(name: Any, kept: str) -> None:
    made = endpoint._chat_document({}, None, [("c", "f", "{}")], None, None, None)
    made["choices"][0]["message"]["tool_calls"][0]["function"]["name"] = name
    response = respond("policy", made, PARAMS)
    assert response.output[0].function_call.name == kept


@given(damaged(PARAMS))
def test_requests(params: Any) -> None:
    with contextlib.suppress(MeshError):
        dumps(to_chat(params))


@given(damaged(RESPONSE))
def test_responses(answer: Any) -> None:
    with contextlib.suppress(MeshError):
        read_response("policy", (), dumps(answer))


@given(damaged(ROW) | damaged(ROLLOUT), damaged(PARAMS))
def test_recordings(row: Any, params: Any) -> None:
    with contextlib.suppress(RecordingError):
        Recording([read_row(row)]).find(params["input"], "r/1")


def test_undamaged_documents_are_fine() -> None:
    respond("policy", read_answer("policy", dumps(CHAT)), PARAMS)
    to_chat(PARAMS)
    read_response("policy", (), dumps(RESPONSE))
    read_row(ROW)
    read_row(ROLLOUT)

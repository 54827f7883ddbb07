"""The `openai` package's own types read what we build."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.backends.replay.recording import read_row
from gymmesh_model.convert import from_chat, messages_from_input
from tests.support.optional import require
from tests.unit.model import documents

Json = dict[str, Any]

require(
    importlib.util.find_spec("openai") is not None, "the openai package", "install gymmesh[openai]"
)


def parsed(document: Json) -> Any:
    """The document as the package's Response; raises when anything is missing or mistyped."""
    response: Any = importlib.import_module("openai.types.responses").Response
    return response.model_validate(document)


@given(documents.model_outputs(), st.sampled_from(["stop", "length", "content_filter"]))
def test_converted_answers(output: list[Json], finish: str) -> None:
    message = messages_from_input(output)[0]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    answer = {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}
    params = {"model": "m", "tools": [{"type": "function", "name": "f", "parameters": {}}]}
    document = from_chat(answer, params, new_id=lambda prefix: f"{prefix}1", now=5)
    # What only later versions of the API require, and what this request left out itself.
    document["usage"]["input_tokens_details"].setdefault("cache_write_tokens", 0)
    document["tools"][0].setdefault("strict", None)
    read = parsed(document)
    assert read.status == ("completed" if finish == "stop" else "incomplete")
    assert [item.type for item in read.output] == [item["type"] for item in output]
    assert read.usage.output_tokens == 2


def test_scripted_answers() -> None:
    row = {
        "match": "q",
        "answers": [
            {"text": "t"},
            {"output": [{"type": "function_call", "name": "f", "arguments": "{}"}]},
            {"text": "cut", "incomplete_details": {"reason": "max_output_tokens"}},
        ],
    }
    kinds = [
        [item.type for item in parsed(answer.document).output] for answer in read_row(row).answers
    ]
    assert kinds == [["message"], ["function_call"], ["message"]]

"""The vectors for other languages are fresh, and hold what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format

import gymmesh_responses as codec
from tests.contract.write_vectors import FOLDER, READERS, texts
from tests.unit.codec.equality import same_json

WRITERS: dict[str, Any] = {
    "response": codec.response_to_json,
    "params": codec.params_to_json,
    "item": codec.item_to_json,
    "tool": codec.tool_to_json,
    "usage": codec.usage_to_json,
}
CASES = json.loads((FOLDER / "codec.json").read_text())


@pytest.mark.parametrize(("name", "text"), texts().items(), ids=list(texts()))
def test_committed_vectors_are_fresh(name: str, text: str) -> None:
    committed = (FOLDER / name).read_text(encoding="utf-8")
    assert committed == text, "run python -m tests.contract.write_vectors"


@pytest.mark.parametrize("case", CASES, ids=[f"{case['noun']}: {case['about']}" for case in CASES])
def test_messages_give_the_documents_back(case: dict[str, Any]) -> None:
    message = READERS[case["noun"]]('{"output": []}' if case["noun"] == "response" else "{}")
    message.Clear()
    json_format.ParseDict(case["message"], message)
    assert same_json(WRITERS[case["noun"]](message), codec.loads(case["json"]))


def test_cases_are_told_apart() -> None:
    assert len({(case["noun"], case["json"]) for case in CASES}) == len(CASES)

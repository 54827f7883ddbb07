"""What a verifier reads from a transcript."""

from __future__ import annotations

import json

import pytest

from gymmesh_resource.rollout import Transcript
from gymmesh_responses import items_from_json


@pytest.mark.parametrize(
    ("written", "outputs"),
    [
        ("c1 c2 o1 o2", {"c1": ["o1"], "c2": ["o2"]}),
        ("c1 c2 o2 o1", {"c1": ["o1"], "c2": ["o2"]}),
        ("c1 o1 c1", {"c1": ["o1", None]}),
        # Some models give the same id in every answer.
        ("c1 o1 c1 o1 c1 o1", {"c1": ["o1", "o1'", "o1''"]}),
        ("c1 c1 o1 o1", {"c1": ["o1", "o1'"]}),
        ("c1", {"c1": [None]}),
        ("o1", {}),
    ],
)
def test_each_call_has_its_own_output(written: str, outputs: dict[str, list[str | None]]) -> None:
    items, seen = [], dict[str, int]()
    for word in written.split():
        call_id = f"c{word[1:]}"
        if word.startswith("c"):
            items.append({"type": "function_call", "name": "f", "arguments": "{}"})
        else:
            output = word + "'" * seen.get(word, 0)
            seen[word] = seen.get(word, 0) + 1
            items.append({"type": "function_call_output", "output": output})
        items[-1]["call_id"] = call_id

    found: dict[str, list[str | None]] = {}
    for call in Transcript(list(items_from_json(json.dumps(items).encode()))).tool_calls:
        found.setdefault(call.call_id, []).append(call.output)

    assert found == outputs

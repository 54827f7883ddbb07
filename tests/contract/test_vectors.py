"""The vectors for other languages are fresh, and hold what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format

import gymmesh_responses as codec
from tests.contract.write_vectors import FOLDER, READERS, texts
from tests.unit.codec.equality import same_json
from tools.rows.contract import ROW, Column, Contract, Message

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


def written(value: Any, column: Column) -> bool:
    """Whether a column has something to say, so that a client which leaves it out is found."""
    if column.has_presence or column.proto.proto3_optional:
        return value is not None
    return value not in (None, "", [], {}, 0, False)


def columns_written(contract: Contract, message: Message, value: Any) -> set[str]:
    """The columns of a message, and of the messages in it, that a part of a row has."""
    found: set[str] = set()
    for column in message.columns:
        holder = value.get(column.options.within, {}) if column.options.within else value
        told = holder.get(column.key)
        if written(told, column):
            found.add(f"{message.name}.{column.name}")
        if column.is_message and not column.is_coded:
            for one in told if isinstance(told, list) else [told] if told else []:
                found |= columns_written(contract, contract.messages[column.type_name], one)
    return found


# Of a stored row that could not be judged anew; no client writes them.
OF_STORED_ROWS = {"RowFailure.reverified_json", "RowFailure.previous_json"}


def test_every_column_is_in_a_row_that_all_languages_write() -> None:
    contract = Contract()
    row = contract.messages[ROW]
    found: set[str] = set()
    for case in json.loads((FOLDER / "rows.json").read_text())["rows"]:
        found |= columns_written(contract, row, case["row"])
    columns = {
        f"{message.name}.{column.name}"
        for message in contract.rows()
        for column in message.columns
        if not column.is_overlay
    }
    missing = ", ".join(sorted(columns - found - OF_STORED_ROWS))
    assert not missing, (
        f"no row of tests/contract/vectors/rows.json has {missing}: set the field in a file of "
        "tests/contract/fold_vectors, then run python -m tests.contract.write_vectors"
    )

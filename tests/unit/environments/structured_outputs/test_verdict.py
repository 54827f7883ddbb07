"""Answers against schemas: a table, hostile ones, and schemas that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource.environments.structured_outputs.parsing import FORMATS
from gymmesh_resource.environments.structured_outputs.verdict import (
    SchemaError,
    judge,
    judge_arguments,
)

TABLE: dict[str, Any] = yaml.load(
    Path(__file__).with_name("verdicts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
CASES: list[dict[str, Any]] = TABLE["cases"]
PERSON = json.dumps(TABLE["schemas"]["person"])
PEOPLE = json.dumps({"type": "array", "items": TABLE["schemas"]["person"]})
ROOTED = json.dumps({"type": "object", "properties": {"person": TABLE["schemas"]["person"]}})
ANY = "{}"


def _schema(case: dict[str, Any]) -> str:
    named = TABLE["schemas"].get(case["schema"])
    return case["schema"] if named is None else json.dumps(named)


@pytest.mark.parametrize("compat", ["", "nemo"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any], compat: str) -> None:
    format = case.get("format", "json")
    wanted = case.get("nemo", case) if compat else case

    result = judge(_schema(case), format, str(case["answer"]), compat=compat)

    assert (result.reward, result.error) == (wanted["reward"], wanted.get("error", "")), result
    assert bool(result.message) == (result.reward == 0.0)
    assert len(result.message) <= 200


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40
    assert {case.get("format", "json") for case in CASES} == set(FORMATS)


def test_xml_stays_text_where_that_is_wanted() -> None:
    schema = json.dumps(TABLE["schemas"]["tree"])
    answer = "<r><n>5</n><ok>1</ok><tags/></r>"

    assert judge(schema, "xml", answer).reward == 1.0
    assert judge(schema, "xml", answer, coerce_xml=False).reward == 0.0


@pytest.mark.parametrize(
    ("arguments", "key", "reward", "error"),
    [
        ('{"name": "Ada", "age": 1}', None, 1.0, ""),
        ('{"name": "Ada", "age": 1}', "", 1.0, ""),
        ('{"data": {"name": "Ada", "age": 1}}', "data", 1.0, ""),
        ('{"data": {"name": "Ada", "age": 1}, "more": 2}', "data", 1.0, ""),
        ('{"data": {"name": "Ada", "age": 1}}', None, 0.0, "validation_error"),
        ('{"name": "Ada", "age": 1}', "data", 0.0, "missing_tool_payload_key"),
        ('["data"]', "data", 0.0, "missing_tool_payload_key"),
        ('{"data": null}', "data", 0.0, "validation_error"),
        ('{"data": ', "data", 0.0, "tool_arguments_parse_error"),
        ("", None, 0.0, "tool_arguments_parse_error"),
    ],
)
def test_a_tools_arguments(arguments: str, key: str | None, reward: float, error: str) -> None:
    result = judge_arguments(PERSON, arguments, key)

    assert (result.reward, result.error) == (reward, error)


@pytest.mark.parametrize(
    ("format", "answer"),
    [
        ("json", "[" * 100_000),
        ("json", "[" * 900 + "]" * 900),
        ("json", "9" * 100_000),
        ("json", '{"a":' * 50_000),
        ("yaml", "[" * 500_000),
        ("yaml", "- " * 500_000 + "1"),
        ("yaml", "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n"
            for n in range(9)
        )),
        ("xml", "<a>" * 50_000),
        ("toml", "a = " + "[" * 5_000),
        ("toml", "a." * 100_000 + "b = 1"),
        ("xml", "<a>" * 50_000 + "</a>" * 50_000),
        ("csv", "a\n" + "x" * 200_000),
        ("json", " " * 2_000_001),
        ("yaml", "\x00"),
        ("json", "\ud800"),
    ],
    ids=["arrays", "deep", "digits", "objects", "flow", "block", "laughs", "elements", "toml",
         "key", "levels", "field", "huge", "null", "surrogate"],
)  # fmt: skip
def test_hostile_answers_are_judged(format: Any, answer: str) -> None:
    schema = {"csv": PEOPLE, "xml": ROOTED}.get(format, PERSON)
    assert judge(schema, format, answer).reward == 0.0
    assert judge(PERSON, format, answer, compat="nemo").reward == 0.0


@given(st.sampled_from(FORMATS), st.text())
def test_any_text_is_judged(format: Any, answer: str) -> None:
    schema = {"csv": PEOPLE, "xml": ROOTED}.get(format, PERSON)
    assert judge(schema, format, answer).reward == 0.0
    assert judge(PERSON, format, answer, compat="nemo").reward == 0.0


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"properties": {"a": {}, "b": {}}}, "requires 2 keys ('a', 'b')"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}, "b": {}}}}}, "2 keys"),
        ({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}, "2 keys"),
        ({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]}, "2 keys"),
        ({"minProperties": 3}, "requires 3 keys"),
        ({"properties": {}, "additionalProperties": False}, "allows no key"),
        ({"maxProperties": 0}, "allows no key"),
        ({"properties": {"full name": {}}}, "'full name'"),
    ],
)
def test_a_schema_that_no_xml_fits_is_named(schema: dict[str, Any], problem: str) -> None:
    text = json.dumps({"type": "object", **schema})
    with pytest.raises(SchemaError, match=re.escape(problem)):
        judge(text, "xml", "<a>1</a>")
    judge(text, "json", "{}")
    assert judge(text, "xml", "<q>1</q>", compat="nemo") is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
def test_all_json_fits_the_empty_schema(value: Any) -> None:
    assert judge(ANY, "json", json.dumps(value)).reward == 1.0


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        "[]",
        "true",
        '{"type": "date"}',
        '{"type": "object", "properties": {"a": {"required": true}}}',
        '{"pattern": "("}',
        '{"$ref": "#/$defs/none"}',
        '{"$ref": "https://example.com/schema.json"}',
        '{"a":' * 50_000,
        '{"properties": {"a": {"multipleOf": 1e400}}}',
        '{"anyOf": [true, {"items": {"multipleOf": 1e400}}]}',
        '{"multipleOf": NaN}',
    ],
)
def test_a_schema_that_is_none_is_the_tasks_fault(schema: str) -> None:
    with pytest.raises(SchemaError):
        judge(schema, "json", '{"a": 1}')


@pytest.mark.parametrize(
    "schema",
    [
        '{"$ref": "#"}',
        '{"allOf": [{"$ref": "#"}]}',
        '{"properties": {"x": {"$ref": "#/$defs/a"}},'
        ' "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}',
        '{"properties": {"x": {"items": {"$ref": "#/$defs/none"}}}}',
        '{"anyOf": [true, {"$ref": "#/allOf/1"}], "allOf": [{}]}',
        '{"$ref": "#/$defs/none"}',
    ],
)
@pytest.mark.parametrize("answer", ['{"a": 1}', "no JSON", "5", ""])
def test_no_answer_decides_whether_a_reference_leads_nowhere(schema: str, answer: str) -> None:
    with pytest.raises(SchemaError):
        judge(schema, "json", answer)


@pytest.mark.parametrize(
    "schema",
    [
        '{"$dynamicRef": "#"}',
        '{"$anchor": "a", "$ref": "#a"}',
        '{"$id": "http://schemas.example/x", "$ref": "x"}',
        '{"properties": {"a": {"$anchor": "a", "$ref": "#a"}}}',
    ],
)
@pytest.mark.parametrize("answer", ['{"a": 1}', '{"a": ' + "[" * 300 + "]" * 300 + "}"])
def test_a_schema_without_end_is_the_tasks_fault(schema: str, answer: str) -> None:
    with pytest.raises(SchemaError):
        judge(schema, "json", answer)


def test_an_answer_that_is_nested_too_deeply_is_judged() -> None:
    schema = '{"type": "array", "items": {"$ref": "#"}}'
    assert judge(schema, "json", "[" * 50 + "]" * 50).reward == 1.0
    assert judge(schema, "json", "[" * 250 + "]" * 250).message == "nested too deeply"


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ('{"properties": {"of": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}}', '{"of": null}'),
        ('{"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {}}}', "1"),
        ('{"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "integer"}}}', "1"),
        ('{"$ref": "#/allOf/0", "allOf": [{"type": "integer"}]}', "1"),
        ('{"$ref": "#name", "$defs": {"a": {"$anchor": "name", "type": "integer"}}}', "1"),
        ('{"$ref": "#/$defs/a", "$defs": {"a": true, "b": {"$ref": "#/$defs/none"}}}', "1"),
        ('{"const": {"$ref": "#/$defs/none"}}', '{"$ref": "#/$defs/none"}'),
        ('{"properties": {"$ref": {"type": "string"}}}', '{"$ref": "#/$defs/none"}'),
        ('{"$ref": "other", "$defs": {"a": {"$id": "other", "items": {"$ref": "#/$defs/b"},'
         ' "$defs": {"b": {"type": "integer"}}}}}', "[1]"),
    ],
    ids=["recursive", "twice", "escapes", "a list", "anchor", "unused", "data", "a property",
         "a document inside"],
)  # fmt: skip
def test_sound_references_are_followed(schema: str, answer: str) -> None:
    assert judge(schema, "json", answer).reward == 1.0

"""Parameters without their input, read once for all calls that share them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.calls.settings import _MOST, _MOST_BYTES, KnownSettings
from gymmesh_model.backends.responses import _written
from gymmesh_model.config import merge_params
from gymmesh_responses import CodecError, loads, params_from_json, params_to_dict
from tests.unit.model import documents

Json = dict[str, Any]
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}}
BASE: Json = {"input": [{"role": "user", "content": "hello"}], "tools": [TOOL], "temperature": 0.5}
# Number 1000, of a later version of the contract.
UNKNOWN_FIELD = b"\xc2\x3e\x03new"
DEFAULTS = {"temperature": 0.1, "top_k": 3}


def known(defaults: Json | None = None) -> KnownSettings:
    return KnownSettings(defaults or {}, None)


@given(documents.params)
def test_settings_and_input_are_the_parameters(document: Json) -> None:
    params = params_from_json(document)
    settings = KnownSettings(DEFAULTS, "ours").of(params)
    if isinstance(document["input"], str):
        assert settings is None
        return
    assert settings is not None
    whole = {**settings.params, "input": document["input"]}
    assert whole == merge_params(DEFAULTS, params_to_dict(params), "ours")


@given(documents.params, documents.params)
def test_calls_share_what_is_the_same_and_nothing_else(one: Json, other: Json) -> None:
    one, other = ({**each, "input": BASE["input"]} for each in (one, other))
    table = known()
    first, second = table.of(params_from_json(one)), table.of(params_from_json(other))
    assert first is not None
    assert first is table.of(params_from_json(copy.deepcopy(one)))
    if first is second:
        assert one == other


def test_parameters_hold_no_map() -> None:
    """Whose order would make the serialized form of equal parameters differ."""
    seen: set[str] = set()
    ahead: list[Descriptor] = [responses_pb2.ResponseParams.DESCRIPTOR]
    while ahead:
        kind = ahead.pop()
        if kind.full_name not in seen:
            seen.add(kind.full_name)
            assert not kind.GetOptions().map_entry
            ahead += [field.message_type for field in kind.fields if field.message_type]
    assert "gymmesh.responses.v1.Item" in seen


@pytest.mark.parametrize(
    "change",
    [
        {"tools": [{**TOOL, "strict": True}]},
        {"tools": [TOOL, TOOL]},
        {"tools": []},
        {"tools": [{"type": "web_search"}]},
        {"temperature": 0.25},
        {"temperature": None},
        {"top_p": 0.5},
        {"model": "other"},
        {"instructions": ""},
        {"parallel_tool_calls": False},
        {"max_output_tokens": 7},
        {"tool_choice": "auto"},
        {"text": {"format": {"type": "text"}}},
        {"reasoning": {"effort": "low"}},
        {"metadata": {"a": "b"}},
        {"previous_response_id": "r"},
        {"unknown": 1},
    ],
)
def test_every_parameter_counts(change: Json) -> None:
    table = known()
    before = table.of(params_from_json(BASE))
    after = table.of(params_from_json({**BASE, **change}))
    assert before is not None
    assert after is not None
    assert before is not after
    assert after.params == {**before.params, **change}


def test_the_input_does_not_count() -> None:
    table = known()
    longer = [*BASE["input"], {"role": "assistant", "content": "hello"}]
    first = table.of(params_from_json(BASE))
    assert first is table.of(params_from_json({**BASE, "input": longer}))


def test_an_input_that_is_no_list_of_items_is_not_for_here() -> None:
    assert known().of(params_from_json({**BASE, "input": "hello"})) is None
    assert known().of(params_from_json({**BASE, "input": 7})) is None
    assert known({"input": []}).of(params_from_json(BASE)) is None


def test_what_cannot_be_read_is_refused_each_time() -> None:
    params = params_from_json(BASE)
    params.metadata_json = b"{"
    table = known()
    for _ in range(2):
        with pytest.raises(CodecError, match="metadata"):
            table.of(params)


def test_only_so_many_are_kept() -> None:
    table = known()
    for number in range(3 * _MOST):
        params = params_from_json({**BASE, "max_output_tokens": number})
        settings = table.of(params)
        assert settings is not None
        assert settings.params["max_output_tokens"] == number
        assert table.of(params) is settings
        assert table._known.cache_info().currsize <= _MOST


def test_large_ones_are_not_kept() -> None:
    table = known()
    params = params_from_json({**BASE, "instructions": "a" * _MOST_BYTES})
    settings = table.of(params)
    assert settings is not None
    assert table.of(params) is not settings
    assert table._known.cache_info().currsize == 0


def test_what_later_versions_of_the_contract_say_counts_too() -> None:
    table = known()
    params = params_from_json(BASE)
    later = responses_pb2.ResponseParams.FromString(params.SerializeToString() + UNKNOWN_FIELD)
    assert table.of(params) is not table.of(later)


@given(documents.params)
def test_the_body_written_of_settings_is_that_of_the_parameters(document: Json) -> None:
    params = params_from_json(document)
    table = KnownSettings({}, "ours")
    settings = table.of(params)
    whole = call(params_to_dict(params) | {"model": "ours"})
    ways = [whole]
    if settings is not None:
        apart = call(settings.params, settings=settings, items=params.input)
        gone_on = call({**settings.params, "input": document["input"]}, settings=settings)
        ways += [apart, apart, gone_on]
    kept = copy.deepcopy([way.params for way in ways])
    for streamed in (False, True):
        expected = loads(_written(whole, streamed=streamed))
        assert expected.get("stream", False) is streamed
        for way in ways:
            assert loads(_written(way, streamed=streamed)) == expected
    assert [way.params for way in ways] == kept


def call(params: Json, **more: Any) -> BackendCall:
    return BackendCall(params=params, rollout_id="", request_id="", seed=None, timeout=1.0, **more)

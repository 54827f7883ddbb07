"""What is read of requests: the same for those that set the same, and no more of it than fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.terms import _ENTRY_BYTES, Readings, _Kept
from gymmesh_responses import items_to_list, new_message, params_from_json, params_to_dict
from gymmesh_runtime.errors import MeshError

CONFIG = AgentConfig(max_steps=5, max_wall_s=30.0, params={"top_p": 0.5}, models={"policy": "a"})


def readings() -> Readings:
    return Readings(CONFIG, (new_message("system", "Be brief."),))


def params(text: str) -> responses_pb2.ResponseParams:
    return params_from_json({"input": text, "temperature": 0.5})


def function(name: str) -> responses_pb2.Tool:
    return responses_pb2.Tool(function=responses_pb2.FunctionTool(name=name))


def test_options_go_over_the_configuration() -> None:
    options = agent_pb2.RolloutOptions(
        max_total_output_tokens=9, models={"judge": "b"}, params_override_json=b'{"top_p": 1}'
    )
    terms = readings().terms(options)
    assert (terms.limits.max_steps, terms.limits.max_total_output_tokens) == (5, 9)
    assert terms.max_wall_s == 30.0
    assert terms.override == {"top_p": 1}
    assert terms.models == {"policy": "a", "judge": "b"}
    assert terms.options == options


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (agent_pb2.RolloutOptions(max_steps=0), "options.max_steps"),
        (agent_pb2.RolloutOptions(max_total_output_tokens=-1), "options.max_total_output_tokens"),
        (agent_pb2.RolloutOptions(max_wall_s=float("nan")), "options.max_wall_s"),
        (agent_pb2.RolloutOptions(params_override_json=b"5"), "options.params_override_json"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_each_time(
    options: agent_pb2.RolloutOptions, field: str
) -> None:
    of = readings()
    for _ in range(2):
        with pytest.raises(MeshError) as caught:
            of.terms(options)
        assert caught.value.metadata == {"field": field}


def test_equal_requests_share_what_was_read_and_others_do_not() -> None:
    of = readings()
    terms = of.terms(agent_pb2.RolloutOptions())
    other = of.terms(agent_pb2.RolloutOptions(params_override_json=b'{"temperature": 0}'))
    assert of.terms(agent_pb2.RolloutOptions()) is terms is not other
    opening = of.opening(params("one"), terms)
    assert of.opening(params("one"), terms) is opening
    for different in (of.opening(params("two"), terms), of.opening(params("one"), other)):
        assert different is not opening
        assert (different.params, different.items) != (opening.params, opening.items)
    assert params_to_dict(opening.params) == {"temperature": 0.5, "top_p": 0.5}
    said = [item["content"] for item in items_to_list(opening.items) if isinstance(item, dict)]
    assert said == ["Be brief.", "one"]


def test_a_sessions_tools_are_merged_once() -> None:
    of = readings()
    opening = of.opening(params("one"), of.terms(agent_pb2.RolloutOptions()))
    both = opening.course([function("a"), function("b")])
    assert both.begun is None  # nothing is made for repeats before there is one
    assert opening.course([function("a"), function("b")]) is both
    assert both.begun is not None
    assert tuple(both.begun.params.input) == both.items
    assert [tool.function.name for tool in both.params.tools] == ["a", "b"]
    assert [tool.function.name for tool in opening.course([function("b")]).params.tools] == ["b"]
    assert opening.course([]).params is opening.params


def test_what_was_not_used_for_longest_is_forgotten_first() -> None:
    of = readings()
    terms = of.terms(agent_pb2.RolloutOptions())
    long = "x" * (1 << 20)
    first, second = of.opening(params(long + "1"), terms), of.opening(params(long + "2"), terms)
    assert of.opening(params(long + "1"), terms) is first
    of.opening(params(long + "3"), terms)
    of.opening(params(long + "4"), terms)  # four of them do not fit
    assert of.opening(params(long + "1"), terms) is first
    assert of.opening(params(long + "2"), terms) is not second


@given(keys=st.lists(st.integers(0, 4), max_size=60), room=st.integers(0, 4))
def test_what_is_kept_is_what_was_used_last(keys: list[int], room: int) -> None:
    kept: _Kept[int] = _Kept(room * (_ENTRY_BYTES + 1))
    used: list[int] = []
    for key in keys:
        whole = (bytes([key]),)
        known = kept.get(whole)
        assert known == (key if key in used[::-1][:room] else None)
        if known is None:
            kept.add(whole, key)
        used = [*(one for one in used if one != key), key]


def test_no_options_are_the_configuration_and_so_are_empty_ones() -> None:
    of = readings()
    without, empty = of.terms(None), of.terms(agent_pb2.RolloutOptions())
    assert without == empty
    assert without.limits.max_steps == 5

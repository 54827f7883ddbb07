"""What is read of requests: the options over the configuration, and the same for equal requests."""

from __future__ import annotations

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.plan import AttemptId, RolloutPlan, RolloutPlans
from gymmesh_responses import items_to_list, new_message, params_from_json, params_to_dict
from gymmesh_runtime.errors import MeshError

CONFIG = AgentConfig(max_steps=5, max_wall_s=30.0, params={"top_p": 0.5}, models={"policy": "a"})
NO_OPTIONS = agent_pb2.RolloutOptions()


def plans() -> RolloutPlans:
    return RolloutPlans(CONFIG, (new_message("system", "Be brief."),))


def params(text: str) -> responses_pb2.ResponseParams:
    return params_from_json({"input": text, "temperature": 0.5})


def function(name: str) -> responses_pb2.Tool:
    return responses_pb2.Tool(function=responses_pb2.FunctionTool(name=name))


def tools_of(plan: RolloutPlan) -> list[str]:
    return [tool.function.name for tool in plan.params.tools]


def test_options_go_over_the_configuration() -> None:
    options = agent_pb2.RolloutOptions(
        max_total_output_tokens=9, models={"judge": "b"}, params_override_json=b'{"top_p": 1}'
    )
    plan = plans().read(options, params("one"))
    assert (plan.limits.max_steps, plan.limits.max_total_output_tokens) == (5, 9)
    assert plan.max_wall_s == 30.0
    assert plan.models == {"policy": "a", "judge": "b"}
    assert plan.options == options
    assert params_to_dict(plan.params) == {"temperature": 0.5, "top_p": 1}


def test_no_options_are_the_configuration() -> None:
    plan = plans().read(NO_OPTIONS, params("one"))
    assert plan.limits.max_steps == 5
    assert params_to_dict(plan.params) == {"temperature": 0.5, "top_p": 0.5}
    said = [item["content"] for item in items_to_list(plan.items) if isinstance(item, dict)]
    assert said == ["Be brief.", "one"]


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
    of = plans()
    for _ in range(2):
        with pytest.raises(MeshError) as caught:
            of.read(options, params("one"))
        assert caught.value.metadata == {"field": field}


def test_equal_requests_share_a_plan_and_others_do_not() -> None:
    of = plans()
    plan = of.read(NO_OPTIONS, params("one"))
    assert of.read(agent_pb2.RolloutOptions(), params("one")) is plan
    cold = agent_pb2.RolloutOptions(params_override_json=b'{"temperature": 0}')
    for other in (of.read(NO_OPTIONS, params("two")), of.read(cold, params("one"))):
        assert (other.params, other.items) != (plan.params, plan.items)


def test_a_sessions_tools_are_added_to_a_copy() -> None:
    of = plans()
    plan = of.read(NO_OPTIONS, params("one"))
    both = of.with_tools(plan, [function("a"), function("b")])
    assert tools_of(both) == ["a", "b"]
    assert of.with_tools(plan, [function("a"), function("b")]) is both
    assert tools_of(of.with_tools(plan, [function("b")])) == ["b"]
    assert of.with_tools(plan, []) is plan
    assert tools_of(plan) == []
    other = of.read(NO_OPTIONS, params("two"))
    assert of.with_tools(other, [function("a"), function("b")]).items == other.items


def test_what_was_read_of_ever_more_tasks_is_not_kept() -> None:
    of = plans()
    first = of.read(NO_OPTIONS, params("0"))
    for number in range(1, 1000):
        of.read(NO_OPTIONS, params(str(number)))
    again = of.read(NO_OPTIONS, params("0"))
    assert again is not first
    assert (again.params, again.items) == (first.params, first.items)


def test_requests_of_an_attempt_are_named_after_it() -> None:
    assert AttemptId("r", 2).name == "r/2"

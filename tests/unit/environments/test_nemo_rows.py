"""Rows that look like an environment's and are judged otherwise are refused, with their key."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh_resource.environment import Environment
from gymmesh_resource.environments.llm_judge import LlmJudgeEnvironment
from gymmesh_resource.environments.math import MathEnvironment
from gymmesh_resource.environments.mcp import McpEnvironment
from gymmesh_resource.environments.mcp.options import ServerOptions
from gymmesh_resource.environments.nemo_gym import NemoGymEnvironment
from gymmesh_resource.environments.reasoning_gym import ReasoningGymEnvironment
from gymmesh_resource.environments.web_search import WebSearchEnvironment
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.task import Task
from tests.unit.resource.served import task

PUZZLE = {"question": "?", "answer": "1", "metadata": {"source_dataset": "countdown"}}
ENVIRONMENTS: dict[str, tuple[Environment[Any], dict[str, Any]]] = {
    "math": (MathEnvironment(), {"expected_answer": "3"}),
    "math_with_judge": (MathEnvironment(judge=True), {"expected_answer": "3"}),
    "llm_judge": (LlmJudgeEnvironment(), {"expected_answer": "Paris"}),
    "rule": (LlmJudgeEnvironment(mode="rule"), {"expected_answer": "Paris"}),
    "rubric": (LlmJudgeEnvironment(), {"rubric": ["Is it right?"]}),
    "web_search": (WebSearchEnvironment(), {"expected_answer": "Paris"}),
    "mcp": (
        McpEnvironment(servers={"s": ServerOptions(command=["false"])}, verdict="exact"),
        {"expected_answer": "Paris"},
    ),
    "reasoning_gym": (ReasoningGymEnvironment(), PUZZLE),
    "nemo_gym": (NemoGymEnvironment(url="http://127.0.0.1:1"), {"expected_answer": "Paris"}),
}
# The servers whose rows each environment judges as they do.
TAKEN = {
    "math": ["math_with_judge", "math_with_autograder", "polymath", "ns_tools", "physics_judge"],
    "math_with_judge": ["math_with_judge", "polymath", "ns_tools"],
    "llm_judge": ["equivalence_llm_judge"],
    "rule": ["equivalence_rule"],
    "rubric": ["multichallenge"],
    "web_search": [],
    "mcp": [],
    "reasoning_gym": ["reasoning_gym"],
}
SERVERS = [
    *{server for servers in TAKEN.values() for server in servers},
    *("hotpotqa_qa", "simpleqa", "bunsenbench_chemistry_mcq", "gpqa_diamond", "terminus_judge"),
    *("swerl_llm_judge", "ruler2", "graphwalks", "google_search", "omniscience", "inverse_if"),
]
OTHERS: list[dict[str, Any]] = [
    {"options": [{"A": "1"}, {"B": "2"}]},
    {"grading_mode": "strict"},
    {"extraction_mode": "lastline"},
    {"answer_format": "fmt_1", "match": {"rule": "exact"}},
    {"eval_type": "ruler2"},
    {"follow_ups": ["And then?"]},
    {"grading_id": "1"},
    {"judge_prompt_template": "?"},
    {"max_dist": 0.1},
    {"metadata": {"harness": "h", "source_dataset": "countdown"}},
    {"problem_type": "parents"},
    {"random_string_to_prepend": "abc"},
]


def check(name: str, **more: Any) -> None:
    environment, row = ENVIRONMENTS[name]
    environment.check_task(Task(task(**{**row, **more})))


@pytest.mark.parametrize("server", sorted(SERVERS))
@pytest.mark.parametrize("name", TAKEN)
def test_the_agents_name_tells_the_server(name: str, server: str) -> None:
    ref = {"type": "responses_api_agents", "name": f"{server}_simple_agent"}
    if server in TAKEN[name]:
        check(name, agent_ref=ref)
        return
    with pytest.raises(TaskInvalid) as caught:
        check(name, agent_ref=ref)
    assert caught.value.field == "agent_ref"
    assert server in str(caught.value)
    assert "nemo_gym" in str(caught.value)
    check("nemo_gym", agent_ref=ref)


@pytest.mark.parametrize("other", OTHERS, ids=lambda row: next(iter(row)))
@pytest.mark.parametrize("name", TAKEN)
def test_a_key_of_other_rows_is_refused(name: str, other: dict[str, Any]) -> None:
    with pytest.raises(TaskInvalid) as caught:
        check(name, **other)
    assert caught.value.field.split(".")[0] in other
    check("nemo_gym", **other)


@pytest.mark.parametrize("name", [*TAKEN, "nemo_gym"])
@pytest.mark.parametrize(
    "more",
    [
        {"agent_ref": {"type": "responses_api_agents", "name": "my_agent"}},
        {"agent_ref": {"name": 7}},
        {"agent_ref": "mcq"},
        {"options": []},
        {"uuid": "1", "source": "s", "level": "hard"},
    ],
    ids=["own agent", "number", "text", "no options", "labels"],
)
def test_other_keys_are_nobodys(name: str, more: dict[str, Any]) -> None:
    check(name, **more)


def test_a_pattern_for_the_answer_is_the_judges() -> None:
    pattern = {"template_metadata": {"output_regex": "Answer: (.*)"}}
    check("llm_judge", **pattern)
    for name in ("math", "web_search", "mcp"):
        with pytest.raises(TaskInvalid, match=r"template_metadata\.output_regex"):
            check(name, **pattern)


@pytest.mark.parametrize(
    ("rubric", "field"),
    [
        ('[{"operator": "correctness", "criteria": "c"}]', "rubric"),
        ([{"operator": "correctness", "criteria": "c"}], "rubric[0].operator"),
    ],
)
def test_a_rubric_of_another_form_is_refused(rubric: Any, field: str) -> None:
    with pytest.raises(TaskInvalid) as caught:
        check("rubric", rubric=rubric)
    assert caught.value.field == field


def test_another_verifier_is_refused() -> None:
    check("math", verifier_type="math_with_judge")
    with pytest.raises(TaskInvalid, match="verifier_type"):
        check("math", verifier_type="lean")

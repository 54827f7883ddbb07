"""How constant answers are dealt among tasks, and the rewards of tool calls in an audit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh_audit import AuditOptions, Report, lines
from gymmesh_audit.policies import CONSTANTS
from gymmesh_mesh.authoring.auditing import audit_here
from gymmesh_resource import Environment, Expected, Rollout, Session, Task, ToolResult, tool
from gymmesh_resource.config import EnvironmentConfig
from tests.audit.small import Small, small_environment

TASKS = 3
ANSWERS = [f"the right answer is number {number}" for number in range(TASKS)]


async def judged_answers(options: AuditOptions) -> Mapping[int, Counter[str]]:
    """How often a verifier judged each constant answer, by the number of the task."""
    judged: dict[int, Counter[str]] = defaultdict(Counter)

    def judge(row: Mapping[str, Any], rollout: Rollout) -> float:
        if rollout.answer in CONSTANTS:
            judged[row["number"]][rollout.answer] += 1
        return float(rollout.answer == row["gold"])

    small = Small("recorded", judge, answers=ANSWERS)
    config = EnvironmentConfig(use="tests")
    report = await audit_here(small.name, config, None, options, instance=small_environment(small))
    assert report.passed, "\n".join(lines(report))
    assert report.tasks == TASKS
    return judged


async def test_each_constant_is_dealt_to_one_task() -> None:
    judged = await judged_answers(AuditOptions(cheap=True, deal=True))
    assert sorted(judged) == list(range(TASKS))
    assert sum(judged.values(), Counter[str]()) == Counter(CONSTANTS)
    sizes = [len(found) for found in judged.values()]
    assert max(sizes) - min(sizes) <= 1


async def test_each_constant_is_tried_on_every_task_without_dealing() -> None:
    judged = await judged_answers(AuditOptions(cheap=True))
    assert judged == {number: Counter(CONSTANTS) for number in range(TASKS)}


async def test_the_same_tasks_are_dealt_the_same_constants() -> None:
    judged = await judged_answers(AuditOptions(cheap=True, deal=True))
    assert judged == await judged_answers(AuditOptions(cheap=True, deal=True))


class PaidByTool(Environment[None]):
    """The expected call earns its reward in the call itself."""

    reward_range = (0.0, 2.0)
    reward_rule = resource_pb2.REWARD_RULE_SUM

    def __init__(self, call_reward: float, rule: resource_pb2.RewardRule.ValueType) -> None:
        self.call_reward = call_reward
        self.reward_rule = rule  # type: ignore[misc]  # differs between tests

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        yield {"task_id": "t", "responses_create_params": {"input": "Pay."}}

    def expected(self, task: Task) -> Expected:
        return Expected("", "text", calls=[("pay", {"amount": 2})])

    @tool
    def pay(self, amount: int) -> ToolResult:
        """Pay an amount."""
        return ToolResult("paid", reward=self.call_reward if amount == 2 else 0.0)

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0


async def audited(call_reward: float, rule: resource_pb2.RewardRule.ValueType) -> Report:
    environment = PaidByTool(call_reward, rule)
    config = EnvironmentConfig(use="tests")
    return await audit_here("paid", config, None, AuditOptions(cheap=True), instance=environment)


async def test_rewards_of_tool_calls_count_in_an_audit_under_the_rule_sum() -> None:
    report = await audited(1.0, resource_pb2.REWARD_RULE_SUM)
    assert report.passed, "\n".join(lines(report))
    assert report.shares["gold"].played == 1


@pytest.mark.parametrize(
    ("call_reward", "rule"),
    [
        (1.0, resource_pb2.REWARD_RULE_VERIFIER_ONLY),
        (0.0, resource_pb2.REWARD_RULE_SUM),
    ],
)
async def test_an_expected_call_that_adds_nothing_is_a_finding(
    call_reward: float, rule: resource_pb2.RewardRule.ValueType
) -> None:
    report = await audited(call_reward, rule)
    assert not report.passed

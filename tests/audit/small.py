"""A verifier in a few lines, as an environment that an audit can play."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymmesh_audit import AuditOptions, Report
from gymmesh_mesh.authoring.auditing import audit_here
from gymmesh_resource import Environment, Expected, Rollout, Session, Task, tool
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.expected import AnswerKind

Row = Mapping[str, Any]
Judge = Callable[[Row, Rollout], float]


@dataclass(frozen=True)
class Small:
    """A verifier with its tasks.

    judge: the reward of a rollout by the task's payload. answers: the tasks' right answers, of
    `kind` and in `form`. found: for faulty ones, the weakness that must be found.
    """

    name: str
    judge: Judge
    answers: Sequence[str] = ()
    kind: AnswerKind = "text"
    form: str = "{answer}"
    found: str = ""
    prompts: Sequence[str] = ()
    choices: Sequence[str] = ()
    calls: Sequence[Sequence[tuple[str, Mapping[str, Any]]]] = ()
    payload: Mapping[str, Any] = field(default_factory=dict)
    tool_answer: str = ""
    judge_labels: bool = False
    win_reward: float | None = None

    async def audited(self) -> Report:
        """The audit of this verifier."""
        made = small_environment(self)
        config = EnvironmentConfig(use="tests")
        return await audit_here(self.name, config, None, AuditOptions(), instance=made)


def small_environment(small: Small) -> Environment[None]:
    """The environment that judges by it."""
    base = _WithTool if small.tool_answer else _WithJudge if small.judge_labels else _Plain
    return base(small)


class _Plain(Environment[None]):
    """Judges by a function."""

    reward_range = (0.0, 1.0)

    def __init__(self, small: Small) -> None:
        self.small = small
        self.win_reward = small.win_reward

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        count = max(len(self.small.answers), len(self.small.calls))
        for number in range(count):
            prompts = self.small.prompts or ["What is it?"]
            yield {
                "task_id": f"t{number}",
                "responses_create_params": {"input": prompts[number % len(prompts)]},
                "gold": self.small.answers[number] if self.small.answers else "",
                "number": number,
                **self.small.payload,
            }

    def expected(self, task: Task) -> Expected:
        small, number = self.small, task.payload["number"]
        calls = small.calls[number] if small.calls else ()
        gold = task.payload["gold"]
        choices = small.choices
        return Expected(gold, small.kind, small.form, calls=calls, choices=choices)

    def call_other(self, session: Session[None], name: str, arguments: dict[str, Any]) -> str:
        return "ok"

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return float(self.small.judge(rollout.task.payload, rollout))


class _WithTool(_Plain):
    """The same with a tool that answers a fixed text, with the gold in place of GOLD."""

    @tool
    def look(self, session: Session[None]) -> str:
        """Look around."""
        return self.small.tool_answer.replace("GOLD", session.task.payload["gold"])


class _WithJudge(_Plain):
    """The same with a model that is asked for a label; the function reads what it said."""

    models = ("judge",)

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        asked = f"[[YES]] or [[NO]] on the last line: is this right?\n{rollout.answer}"
        said: list[str] = []
        for criterion in rollout.task.payload.get("criteria", ["right"]):
            answer = await session.ask("judge", f"{asked}\nCriterion: {criterion}")
            said.append(answer.text)
        payload = {**rollout.task.payload, "said": said}
        return float(self.small.judge(payload, rollout)) if rollout.answer.strip() else 0.0

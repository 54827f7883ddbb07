"""An assistant in an office: mail, calendar, project boards, customers, website analytics.

Task rows have `ground_truth`, as NeMo Gym's workplace_assistant: the calls that lead to the
state which the model's calls are to lead to.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, ToolError, Verdict
from gymmesh_resource.environments.workplace.agenda import CalendarTools
from gymmesh_resource.environments.workplace.analytics import AnalyticsTools
from gymmesh_resource.environments.workplace.board import ProjectTools
from gymmesh_resource.environments.workplace.customers import CustomerTools
from gymmesh_resource.environments.workplace.mail import DirectoryTools, MailTools
from gymmesh_resource.environments.workplace.office import Office, differing_tables
from gymmesh_resource.environments.workplace.synthetic import synthetic_office
from gymmesh_resource.environments.workplace.tables import read_office
from gymmesh_resource.expected import Expected
from gymmesh_resource.tools import BadArguments, Toolset, read_arguments
from gymmesh_responses import dumps, loads, text_to_bytes

# Failed calls that are kept as evidence, and characters of their answers.
_SHOWN = 10
_TOLD = 200
_CHANGING = ("_send_", "_delete_", "_forward_", "_reply_", "_create_", "_update_", "_add_")

WrittenCall: TypeAlias = "tuple[str, bytes]"
"""A call as it was written: a tool's name, and its arguments as JSON."""


class WorkplaceEnvironment(
    DirectoryTools,
    MailTools,
    CalendarTools,
    AnalyticsTools,
    ProjectTools,
    CustomerTools,
    Environment[Office],
):
    """An office assistant with 27 tools over mail, calendar, tasks, customers and analytics.

    The reward is 1.0 when the model's calls leave the office in the state that the expected
    calls lead to, else 0.0.
    """

    version = "1"
    in_order = True
    # The verdict carries out the calls of the transcript again.
    verify_needs_session = False
    examples = "tasks.jsonl"

    def __init__(self, *, data: str | None = None, data_seed: int = 0) -> None:
        """Options.

        data: a folder of CSV files as WorkBench has them; without one the office is synthetic.
        data_seed: which synthetic office; the example tasks are about that of seed 0.
        """
        folder = None if data is None else Path(data)
        self.office_data = synthetic_office(data_seed) if folder is None else read_office(folder)
        """Where every session starts."""

    def create_state(self, task: Task, seed: int) -> Office:
        """The office as it is at first; the seed has no part in it."""
        return Office(self.office_data)

    def check_task(self, task: Task) -> None:
        """The expected calls must be possible on this office's data, and lead somewhere."""
        calls = _ground_truth(task)
        office, problems = self._replay(task, calls)
        for position, problem in problems.items():
            raise TaskInvalid(
                f"ground_truth[{position}]",
                f"cannot be carried out on this office's data ({problem.rstrip('.')})",
            )
        changing = any(verb in name for name, _ in calls for verb in _CHANGING)
        if changing and not differing_tables(office, Office(self.office_data)):
            raise TaskInvalid(
                "ground_truth",
                "changes nothing in this office, so an agent that does nothing would be right",
            )

    def expected(self, task: Task) -> Expected:
        """The row's calls."""
        calls = [(name, loads(arguments)) for name, arguments in _ground_truth(task)]
        return Expected("Done.", "calls", calls=calls)

    def verify(self, session: Session[Office], rollout: Rollout) -> Verdict:
        """Compare the state after the model's calls with that after the expected ones."""
        task = rollout.task
        with rollout.stage("replay") as stage:
            made = [(call.name, call.arguments_json) for call in rollout.tool_calls]
            ours, problems = self._replay(task, made)
            stage.note = f"{len(made)} calls"
        wanted, _ = self._replay(task, _ground_truth(task))
        differing = differing_tables(ours, wanted)
        failed = list(problems.items())[:_SHOWN]
        return Verdict(
            float(not differing),
            evidence={
                "differing_tables": differing,
                "failed_calls": {str(index): text[:_TOLD] for index, text in failed},
            },
            explanation=_explained(differing),
        )

    def _replay(self, task: Task, calls: list[WrittenCall]) -> tuple[Office, dict[int, str]]:
        """A fresh office after the calls, and what went wrong by the position of the call; one
        that fails changes nothing, and the next follows.
        """
        office = Office(self.office_data)
        session = Session("replay", task, 0, office)
        problems: dict[int, str] = {}
        for position, (name, written) in enumerate(calls):
            tool = self._tools.get(name)
            if tool is None:
                problems[position] = f"There is no tool {name[:64]!r}."
                continue
            try:
                arguments = read_arguments(written, tool.arguments, tool.schema, name)
                tool.call(session=session, **arguments)
            except (BadArguments, ToolError) as error:
                problems[position] = str(error)
        return office, problems

    @cached_property
    def _tools(self) -> Toolset:
        return Toolset(self)


def _explained(differing: list[str]) -> str:
    if not differing:
        return "the office is in the expected state"
    return f"not in the expected state: {', '.join(differing)}"


def _ground_truth(task: Task) -> list[WrittenCall]:
    calls = task.require("ground_truth", list)
    return [_written(call, f"ground_truth[{index}]") for index, call in enumerate(calls)]


def _written(call: Any, where: str) -> WrittenCall:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise TaskInvalid(where, 'must be an object with "name" and "arguments"')
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):
        return call["name"], text_to_bytes(arguments)
    if not isinstance(arguments, dict):
        raise TaskInvalid(f"{where}.arguments", "must be an object, or text that is a JSON object")
    return call["name"], dumps(arguments)

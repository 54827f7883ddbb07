"""Carries out recorded calls on a fresh office, through the very tools that sessions have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gymmesh_resource import Session, Task, ToolError
from gymmesh_resource.tools import BadArguments, Toolset, read_arguments

from .office import Office, OfficeData


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as it was written: a tool's name, and its arguments as JSON."""

    name: str
    arguments_json: bytes


@dataclass(frozen=True, slots=True)
class Replayed:
    """The office after the calls, and what went wrong, by the position of the call."""

    office: Office
    problems: dict[int, str]


def replay(
    tools: Toolset, task: Task, data: OfficeData, actions: Iterable[WrittenCall]
) -> Replayed:
    """Carry out calls in their order; one that fails changes nothing, and the next follows."""
    office = Office(data)
    session = Session("replay", task, 0, office)
    problems: dict[int, str] = {}
    for position, action in enumerate(actions):
        problem = _carry_out(tools, session, action)
        if problem is not None:
            problems[position] = problem
    return Replayed(office, problems)


def _carry_out(tools: Toolset, session: Session[Office], action: WrittenCall) -> str | None:
    tool = tools.get(action.name)
    if tool is None:
        return f"There is no tool {action.name[:64]!r}."
    try:
        arguments = read_arguments(action.arguments_json, tool.arguments, tool.schema, action.name)
        tool.call(session=session, **arguments)
    except (BadArguments, ToolError) as error:
        return str(error)
    return None

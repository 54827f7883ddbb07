"""The project boards."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from gymmesh_resource import Session, ToolError, tool
from gymmesh_resource.environments.workplace.office import Office, OfficeRecord
from gymmesh_resource.environments.workplace.searching import (
    has_texts,
    read_date,
    require,
    wanted_texts,
)

TaskId: TypeAlias = Annotated[str, "the task's id, eight digits"]
TaskField: TypeAlias = Annotated[
    Literal["task_id", "task_name", "assigned_to_email", "list_name", "due_date", "board"],
    "which field",
]
MutableTaskField: TypeAlias = Annotated[
    Literal["task_name", "assigned_to_email", "list_name", "due_date", "board"], "which field"
]
TaskList: TypeAlias = Literal["Backlog", "In Progress", "In Review", "Completed"]
Board: TypeAlias = Literal["Back end", "Front end", "Design"]
LISTS: tuple[str, ...] = get_args(TaskList)
BOARDS: tuple[str, ...] = get_args(Board)


class ProjectTools:
    """Reading, searching, making and changing tasks."""

    @tool(name="project_management_get_task_information_by_id")
    def task_field(
        self, session: Session[Office], task_id: TaskId, field: TaskField
    ) -> dict[str, Any]:
        """Read one field of a task."""
        return {field: session.state.tasks.find(task_id)[field]}

    @tool(name="project_management_search_tasks")
    def search_tasks(
        self,
        session: Session[Office],
        task_name: str | None = None,
        assigned_to_email: str | None = None,
        list_name: str | None = None,
        due_date: str | None = None,
        board: str | None = None,
    ) -> list[OfficeRecord] | str:
        """Find tasks; all that is given must fit, parts of names do.

        Args:
            task_name: text that the name has
            assigned_to_email: the whole address of who does it
            list_name: the list
            due_date: the day it is due, YYYY-MM-DD
            board: the board
        """
        wanted = wanted_texts(
            task_name=task_name, list_name=list_name, due_date=due_date, board=board
        )
        if not wanted and not assigned_to_email:
            raise ToolError("Say what to look for: give at least one of the parameters.")
        assignee = (assigned_to_email or "").lower()
        if assignee and "@" not in assignee:
            raise ToolError(
                f"{assignee[:80]!r} is not an email address. "
                "company_directory_find_email_address finds the addresses of colleagues."
            )
        found = [
            task
            for task in session.state.tasks
            if (not assignee or (task["assigned_to_email"] or "").lower() == assignee)
            and has_texts(task, wanted)
        ]
        return found or "No tasks found."

    @tool(name="project_management_create_task")
    def create_task(
        self,
        session: Session[Office],
        task_name: str,
        assigned_to_email: str,
        list_name: TaskList,
        due_date: str,
        board: Board,
    ) -> str:
        """Make a task; answers its id.

        Args:
            task_name: the task's name
            assigned_to_email: the address of the colleague who does it
            list_name: the list it belongs to
            due_date: the day it is due, YYYY-MM-DD
            board: the board it belongs to
        """
        require(task_name=task_name)
        return session.state.tasks.add(
            {
                "task_name": task_name,
                "assigned_to_email": _colleague(session, assigned_to_email),
                "list_name": list_name,
                "due_date": read_date("due_date", due_date),
                "board": board,
            }
        )

    @tool(name="project_management_delete_task")
    def delete_task(self, session: Session[Office], task_id: TaskId) -> str:
        """Delete a task."""
        session.state.tasks.delete(task_id)
        return "Task deleted successfully."

    @tool(name="project_management_update_task")
    def update_task(
        self,
        session: Session[Office],
        task_id: TaskId,
        field: MutableTaskField,
        new_value: Annotated[str, "the new value of the field"],
    ) -> str:
        """Change one field of a task."""
        session.state.tasks.find(task_id)
        require(new_value=new_value)
        if field == "assigned_to_email":
            new_value = _colleague(session, new_value)
        elif field == "due_date":
            new_value = read_date("due_date", new_value)
        elif field == "list_name" and new_value not in LISTS:
            raise ToolError(f"list_name must be one of: {', '.join(LISTS)}.")
        elif field == "board" and new_value not in BOARDS:
            raise ToolError(f"board must be one of: {', '.join(BOARDS)}.")
        session.state.tasks.update(task_id, field, new_value)
        return "Task updated successfully."


def _colleague(session: Session[Office], address: str) -> str:
    lowered = address.lower()
    if lowered not in session.state.data.addresses:
        raise ToolError(
            f"Nobody in the company has the address {address[:80]!r}. "
            "company_directory_find_email_address finds addresses by name."
        )
    return lowered

"""What changed between a run and its resumption, from what stands beside the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymmesh_client.run_file import task_lines
from gymmesh_client.run_file.changes import changes, described
from gymmesh_client.run_file.file import read_run_file
from gymmesh_client.run_file.task_lines import TaskLines

if TYPE_CHECKING:
    from gymmesh_client.journal.format.layout import OutputFiles
    from gymmesh_client.run_file.identity import RunIdentity


def what_changed(files: OutputFiles, now: RunIdentity, was: RunIdentity, name: str) -> str:
    """What changed in a run's tasks or configuration, as a clause; empty where it is not known.

    Args:
        now: the identity of the resumption.
        was: what the journal says; what stands beside the run counts only if it is of this.
        name: `tasks` or `config`.
    """
    made_of = now.made_of
    if made_of is None:
        return ""
    if name == "tasks":
        lines = TaskLines.read(files.task_lines)
        known = lines is not None and lines.sha256 == was.tasks
        return task_lines.described(lines, made_of.lines, made_of.path) if known and lines else ""
    about = read_run_file(files.run)
    identity = about.get("identity")
    if not isinstance(identity, dict) or identity.get("config") != was.config:
        return ""
    found = changes(identity.get("configuration"), made_of.configuration)
    return described(found) if found else "a value that is not kept, since it is secret"

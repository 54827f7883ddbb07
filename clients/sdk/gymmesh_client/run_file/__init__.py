"""A run explains itself: NAME.run.json beside its rows, and NAME.tasks, by which a resumption can
name the task that changed.

document.py    what the file says (pure)
secrets.py     JSON values without what is secret (pure)
changes.py     which keys of a configuration differ (pure)
task_lines.py  the task file's lines as digests, and which of them changed
file.py        writes and reads NAME.run.json, whole or not at all
"""

from gymmesh_client.run_file.changes import Change, changes
from gymmesh_client.run_file.document import RunDocument
from gymmesh_client.run_file.file import RunFile, read_run_file
from gymmesh_client.run_file.secrets import without_secrets
from gymmesh_client.run_file.task_lines import TaskLines

__all__ = [
    "Change",
    "RunDocument",
    "RunFile",
    "TaskLines",
    "changes",
    "read_run_file",
    "without_secrets",
]

"""The description of a run: NAME.run.json in the folder of its rows, and NAME.tasks, by which
resuming can name the changed task.

identity    a run's inputs, and their changes: tasks, configuration, versions
document    the content of the file (pure)
secrets     JSON values without secrets (pure)
environment_versions  versions of environments and verifiers, and which of them differ (pure)
changes     which keys of a configuration differ (pure)
task_lines  the task file's lines as digests, and which of them changed
file        writes and reads NAME.run.json atomically
"""

from gymmesh_client.run_file.changes import ValueChange, changes, described
from gymmesh_client.run_file.document import RunDocument, merged, versions
from gymmesh_client.run_file.environment_versions import (
    EnvironmentVersion,
    Versions,
    source_changes,
    version_changes,
)
from gymmesh_client.run_file.file import read_run_file, write_document
from gymmesh_client.run_file.identity import RunIdentity, session_info
from gymmesh_client.run_file.secrets import is_masked, without_secrets
from gymmesh_client.run_file.task_lines import TaskLines

__all__ = [
    "EnvironmentVersion",
    "RunDocument",
    "RunIdentity",
    "TaskLines",
    "ValueChange",
    "Versions",
    "changes",
    "described",
    "is_masked",
    "merged",
    "read_run_file",
    "session_info",
    "source_changes",
    "version_changes",
    "versions",
    "without_secrets",
    "write_document",
]

"""A run explains itself: NAME.run.json beside its rows, and NAME.tasks, by which a resumption can
name the task that changed.

identity    what a run is made of, and what of it changed: tasks, configuration, versions
document    what the file says (pure)
secrets     JSON values without what is secret (pure)
environment_versions  versions of environments and verifiers, and which of them differ (pure)
changes     which keys of a configuration differ (pure)
task_lines  the task file's lines as digests, and which of them changed
file        writes and reads NAME.run.json, whole or not at all
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

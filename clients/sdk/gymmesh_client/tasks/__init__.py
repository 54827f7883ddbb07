"""Task files, and which of their tasks a collector does.

reader   rows into tasks
images   files beside a task file that its rows name as images
file     the tasks of a file, read as they are needed
checks   what may be wrong with a row
other_formats  files that are not JSON lines, with the command that makes tasks of them
shards   parts of one run that collectors of their own do (pure)
"""

from gymmesh_client.tasks.checks import check_names, check_params, check_row, check_settings
from gymmesh_client.tasks.file import TaskFile
from gymmesh_client.tasks.images import images_digest
from gymmesh_client.tasks.reader import OWN_KEYS, TaskDefaults, TaskReader, TaskRow
from gymmesh_client.tasks.shards import WHOLE, Shard, session_of, shard_of

__all__ = [
    "OWN_KEYS",
    "WHOLE",
    "Shard",
    "TaskDefaults",
    "TaskFile",
    "TaskReader",
    "TaskRow",
    "check_names",
    "check_params",
    "check_row",
    "check_settings",
    "images_digest",
    "session_of",
    "shard_of",
]

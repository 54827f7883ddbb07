"""Task files.

reader   rows into tasks
file     the tasks of a file, read as they are needed
checks   what may be wrong with a row
"""

from gymmesh_client.tasks.file import TaskFile
from gymmesh_client.tasks.reader import OWN_KEYS, TaskDefaults, TaskReader, TaskRow

__all__ = ["OWN_KEYS", "TaskDefaults", "TaskFile", "TaskReader", "TaskRow"]

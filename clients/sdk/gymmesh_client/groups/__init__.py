"""Groups: all repeats of a task.

judging   groups whose repeats are judged together
store     finished groups on their way to a trainer (pure)
stream    hands them out, and waits for more
"""

from gymmesh_client.groups.store import Group

__all__ = ["Group"]

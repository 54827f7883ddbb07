"""Groups: all repeats of a task.

judging   groups whose repeats are judged together
store     finished groups on their way to a trainer (pure)
stream    hands them out, and waits for more
share_records
          what is noted of shared groups, and what that adds up to (pure)
group_log
          keeps the notes in a file
shares    which consumer gets which group, where several share them (pure)
shared_stream
          hands them out to consumers
"""

from gymmesh_client.groups.group_log import GroupLog
from gymmesh_client.groups.judging import HeldRollout, JudgedGroups, judge, left_pending, unjudged
from gymmesh_client.groups.share_records import SharesState
from gymmesh_client.groups.shared_stream import SharedGroup, SharedStream
from gymmesh_client.groups.shares import ConsumerClaim
from gymmesh_client.groups.store import Group, GroupStore, weights_of
from gymmesh_client.groups.stream import GroupStream

__all__ = [
    "ConsumerClaim",
    "Group",
    "GroupLog",
    "GroupStore",
    "GroupStream",
    "HeldRollout",
    "JudgedGroups",
    "SharedGroup",
    "SharedStream",
    "SharesState",
    "judge",
    "left_pending",
    "unjudged",
    "weights_of",
]

"""What several commands do.

interrupts.py   Ctrl-C and SIGTERM
session.py      opens the mesh that a command runs in
task_choice.py  reads its tasks
tracking.py     sends a run, or a profile, to a tracker
"""

from gymmesh_cli.shared.interrupts import interrupting, on_interrupt
from gymmesh_cli.shared.session import MeshPlan
from gymmesh_cli.shared.task_choice import (
    TaskChoice,
    checked_rows,
    choose_tasks,
    refuse_pipe,
    right_tasks,
)
from gymmesh_cli.shared.tracking import profile_tracking_of, send_profile, tracked

__all__ = [
    "MeshPlan",
    "TaskChoice",
    "checked_rows",
    "choose_tasks",
    "interrupting",
    "on_interrupt",
    "profile_tracking_of",
    "refuse_pipe",
    "right_tasks",
    "send_profile",
    "tracked",
]

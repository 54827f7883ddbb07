"""New verdicts for stored rollouts, without model calls.

stored_task.py  the task and the transcript that a row gives back (pure)
task_source.py  the tasks of the file that a run was collected from
judged_row.py   the row with its new verdict, the old one kept (pure)
replay.py       brings a new session to where a rollout's was, by its tool calls
changes.py      how many verdicts changed, and how (pure)
verifiers.py    the environments that judge, wherever they are
sources.py      the rollouts to judge, and the environments that they are of
run.py          judges all rollouts of some sources, side by side
"""

from gymmesh_data.reverify.changes import VerdictChanges
from gymmesh_data.reverify.run import Reverification, ReverifyOptions, count_kept, reverify
from gymmesh_data.reverify.sources import Source
from gymmesh_data.reverify.stored_task import stored_task, transcript_of
from gymmesh_data.reverify.task_source import TaskSource
from gymmesh_data.reverify.verifiers import Verifiers
from gymmesh_data.tasks import evidence_keys

__all__ = [
    "Reverification",
    "ReverifyOptions",
    "Source",
    "TaskSource",
    "VerdictChanges",
    "Verifiers",
    "count_kept",
    "evidence_keys",
    "reverify",
    "stored_task",
    "transcript_of",
]

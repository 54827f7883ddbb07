"""Stored rollouts: read, select, export, import, profile and rescore them.

sources.py       rows of runs and files in order, each with its place
rollout.py       a row's content, checked
conversation.py  the Responses items of a rollout as chat messages (pure)
actors.py        the conversations of actors other than the root agent (pure)
samples.py       the exact tokens of a rollout as training samples (pure)
selection.py     which rollouts an export selects (pure)
pairs.py         which rollouts of a task make a preference pair (pure)
tasks.py         the task of a rollout (pure)
exports/         the formats, and how their files are written
showing.py       which rollout to show
reverify/        new verdicts for stored rollouts
track/           a run's figures and samples at a tracker, live
"""

from gymmesh_data.actors import Actor, actors_of
from gymmesh_data.conversation import ChatStyle, Conversation, conversation_of
from gymmesh_data.exports import EXPORTS, FORMATS, ExportOptions, ExportSummary, export, export_hub
from gymmesh_data.pairs import Pair, PairRules
from gymmesh_data.rollout import StoredRollout, stored_rollout
from gymmesh_data.samples import Sample, samples_of
from gymmesh_data.selection import Selection
from gymmesh_data.sources import read_rollouts
from gymmesh_data.tasks import task_of

__all__ = [
    "EXPORTS",
    "FORMATS",
    "Actor",
    "ChatStyle",
    "Conversation",
    "ExportOptions",
    "ExportSummary",
    "Pair",
    "PairRules",
    "Sample",
    "Selection",
    "StoredRollout",
    "actors_of",
    "conversation_of",
    "export",
    "export_hub",
    "read_rollouts",
    "samples_of",
    "stored_rollout",
    "task_of",
]

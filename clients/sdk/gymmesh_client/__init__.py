"""The client's side of the mesh: tasks in, verified rollouts out.

tasks           task files
dispatch        decides what runs next, and how to react to each outcome (pure)
collector       runs the rollouts that the dispatcher assigns, and records their outcomes
collect_stream  many rollouts over one connection to an agent
rollout         builds a rollout from its events (pure)
groups          all repeats of a task: scored together, passed to a trainer
control         controls a run from other processes
output          a run's files: open, resume, write, merge
rows            rollouts as rows of JSON lines (pure)
journal         writes rows and the log of outcomes to disk before they count
log             reads the log of a run (log_records: its records; rollout_ids and output_files: the
                names of rollouts and files)
row_files       reads rows at their offsets
index           looks up rollouts of a run; derived from log and rows
traces          every event of a run, on disk
run_file        records what a run was made with: NAME.run.json
"""

from gymmesh_client.agents import (
    AgentConnector,
    AgentLoad,
    AgentPeer,
    InProcessAgent,
    StreamingAgent,
)
from gymmesh_client.attempt import run_attempt
from gymmesh_client.collector import (
    CollectOptions,
    Collector,
    Figures,
    MemoryOutput,
    Order,
)
from gymmesh_client.disk import OutputError
from gymmesh_client.groups import Group
from gymmesh_client.index import Attempt, RunReader, open_run
from gymmesh_client.output import OpenOptions, RetryChoice, RunOutput
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import TaskProblem, UserError
from gymmesh_client.rollout import Fold, StreamViolation, conversation, fold, transcript
from gymmesh_client.rows import FailedAttempt, completed_row, failure_row
from gymmesh_client.run_file import RunIdentity
from gymmesh_client.summary import RunSummary, Tally, pass_at_k, render, summarize
from gymmesh_client.tasks import TaskDefaults, TaskFile, TaskReader, TaskRow
from gymmesh_client.traces import TraceReader, open_trace

__all__ = [
    "AgentConnector",
    "AgentLoad",
    "AgentPeer",
    "Attempt",
    "CollectOptions",
    "Collector",
    "FailedAttempt",
    "Figures",
    "Fold",
    "Group",
    "InProcessAgent",
    "MemoryOutput",
    "OpenOptions",
    "Order",
    "OutputError",
    "OutputFiles",
    "RetryChoice",
    "RunIdentity",
    "RunOutput",
    "RunReader",
    "RunSummary",
    "StreamViolation",
    "StreamingAgent",
    "Tally",
    "TaskDefaults",
    "TaskFile",
    "TaskProblem",
    "TaskReader",
    "TaskRow",
    "TraceReader",
    "UserError",
    "completed_row",
    "conversation",
    "failure_row",
    "fold",
    "open_run",
    "open_trace",
    "pass_at_k",
    "render",
    "run_attempt",
    "summarize",
    "transcript",
]

"""The client's side of the mesh: tasks in, verified rollouts out.

tasks           task files
dispatch        decides what runs next, and what follows from how it ended (pure)
collector       the collector: runs what the dispatcher assigns, records how it ends
collect_stream  many rollouts over one connection to an agent
rollout         a rollout, made of its events (pure)
groups          all repeats of a task: judged together, handed to a trainer
control         a run steered from other processes
output          a run's files: opened, gone on with, written to, merged
rows            rollouts as rows of JSON lines (pure)
journal         writes rows and the log of outcomes, on disk before they count
log             what the log of a run says (log_records: the records; rollout_ids: how rollouts are
                named; output_files: how files are)
row_files       rows at their places
index           what is looked up, derived from log and rows; a run is read by it
traces          every event of a run, on disk
run_file        what a run was made with: NAME.run.json
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

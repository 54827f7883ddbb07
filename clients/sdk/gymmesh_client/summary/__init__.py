"""The summary of a run.

tally        takes one outcome at a time (pure)
tokens       how many a rollout had (pure)
pass_at_k    pass@k (pure)
run_summary  the figures of a run, and the file that keeps them
rendering    the figures as text (pure)
"""

from gymmesh_client.summary.pass_at_k import SOLVED, pass_at_each, pass_at_k, tasks_at_each
from gymmesh_client.summary.rendering import bars, histogram, render
from gymmesh_client.summary.run_summary import RunSummary, summarize, summary_path, write_summary
from gymmesh_client.summary.tally import (
    Counted,
    JudgedBy,
    Tally,
    counted,
    counts_of,
    judge_of,
    judged_by,
    mixed_versions,
)
from gymmesh_client.summary.tokens import tokens_of

__all__ = [
    "SOLVED",
    "Counted",
    "JudgedBy",
    "RunSummary",
    "Tally",
    "bars",
    "counted",
    "counts_of",
    "histogram",
    "judge_of",
    "judged_by",
    "mixed_versions",
    "pass_at_each",
    "pass_at_k",
    "render",
    "summarize",
    "summary_path",
    "tasks_at_each",
    "tokens_of",
    "write_summary",
]

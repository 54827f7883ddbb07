"""A run's output: its rows, its journal and the files that explain it.

run_output    where outcomes are written; opens it
options       how it is opened
opening       refuses, begins or resumes it
same_run      whether what is there is the run that is asked for
retry_choice  which finished rollouts run again, and gives up their outcomes
merge         joins the outputs of a run's shards
compaction    takes superseded rows out of the row files
foreign_files files in the way that belong to no run
"""

from gymmesh_client.output.compaction import compact_run
from gymmesh_client.output.merge import merge
from gymmesh_client.output.opening import check, make_folder_of
from gymmesh_client.output.options import OpenOptions
from gymmesh_client.output.retry_choice import RetryChoice
from gymmesh_client.output.run_output import RunOutput

__all__ = [
    "OpenOptions",
    "RetryChoice",
    "RunOutput",
    "check",
    "compact_run",
    "make_folder_of",
    "merge",
]

"""Contamination: tasks whose texts, or whose canaries, are in training files.

ngrams.py   texts as words, and the tasks' n-grams (pure)
findings.py the matches of each task (pure)
scan.py     `find_contamination`: reads task and training files
"""

from gymmesh_data.contamination.findings import CanaryFound, TaskFound
from gymmesh_data.contamination.scan import (
    Contamination,
    ContaminationOptions,
    find_contamination,
)

__all__ = [
    "CanaryFound",
    "Contamination",
    "ContaminationOptions",
    "TaskFound",
    "find_contamination",
]

"""Whether two offices over the same data are in the same state. Pure.

The rule is that of WorkBench and of NeMo Gym's workplace_assistant: what counts is the state
that the model's calls lead to, not the calls. Texts are compared without regard to capitals but
for a customer's status, a task's list and its board. Here, unlike there, records that were newly
made may have been made in any order, and get any ids.
"""

from __future__ import annotations

from .office import Office


def differing_tables(left: Office, right: Office) -> list[str]:
    """The names of the tables that differ; none where the states are the same."""
    if left.data is not right.data:
        raise ValueError("the offices do not start from the same data")
    ours, theirs = left.differences(), right.differences()
    return [name for name in ours if ours[name] != theirs[name]]

"""The dispatcher: which rollout runs next, and what becomes of one that ended.

Everything here is pure: no task, no socket, no clock. The collector says what happened and when
(seconds of any monotonic clock), and carries out what is decided.

    causes        what each kind of failure means for a further attempt
    gate          agents, models and environments that are away: what needs them waits
    faults        faults that come back with every attempt, failures that befall every rollout
    concurrency   how many rollouts in flight, adapted to what the mesh takes; how fast they start
    backlog       what is asked for and not started, by environment, in its order
    terms         the options, and what is decided
    dispatcher    the whole
"""

from gymmesh_client.dispatch.backlog import Assignment
from gymmesh_client.dispatch.causes import Ended, cause_of
from gymmesh_client.dispatch.dispatcher import Dispatcher
from gymmesh_client.dispatch.terms import Decision, DispatchOptions, RunStateError, State

__all__ = [
    "Assignment",
    "Decision",
    "DispatchOptions",
    "Dispatcher",
    "Ended",
    "RunStateError",
    "State",
    "cause_of",
]

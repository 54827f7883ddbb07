"""The dispatcher: decides which rollout runs next, and whether to retry one that ended.

Everything here is pure: no task, no socket, no clock. The collector reports what happened and when
(seconds of any monotonic clock), and carries out the decisions.

    causes        whether and when to retry after each kind of failure
    gate          unreachable agents, models and environments: rollouts that need them wait
    faults        faults that recur in every attempt, and failures of every rollout
    concurrency   how many rollouts in flight, adapted to the mesh's capacity; how fast they start
    backlog       requested rollouts that have not started, by environment, in order
    terms         the options, and the decisions
    dispatcher    combines the modules above
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

"""Collecting: tasks in, rows out.

collector   the run: starts workers, each for one attempt; steering; how far it is
workers     the attempts in flight, and their tasks, in a group
worker      an attempt from its start until what follows from its end is on disk
recorder    records how rollouts end, spread over the turns of the event loop
row_maker   makes the rows: small ones in the loop, large ones in a thread
requests    the rollouts without an outcome, and the request for an attempt of one (pure)
kept_groups groups of earlier sessions that no trainer has
order       the order in which rollouts are started (pure)
outcomes    where outcomes go: files, or nowhere
options     how to collect
figures     how far a run is
metrics     the instruments of a run
"""

from gymmesh_client.collector import metrics
from gymmesh_client.collector.collector import Collector
from gymmesh_client.collector.figures import Figures
from gymmesh_client.collector.kept_groups import KeptGroup, KeptGroups
from gymmesh_client.collector.options import CollectOptions
from gymmesh_client.collector.order import Order, length_from
from gymmesh_client.collector.outcomes import MemoryOutput, Outcomes
from gymmesh_client.collector.requests import repeat_seed
from gymmesh_client.collector.worker import ended_by

__all__ = [
    "CollectOptions",
    "Collector",
    "Figures",
    "KeptGroup",
    "KeptGroups",
    "MemoryOutput",
    "Order",
    "Outcomes",
    "ended_by",
    "length_from",
    "metrics",
    "repeat_seed",
]

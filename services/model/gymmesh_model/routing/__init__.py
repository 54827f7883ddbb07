"""Which endpoint gets a call, and how many calls run at a time. No I/O but lines in the log.

Pool         the endpoints of a model: picks one per call, learns from how calls end
Router       ranks the endpoints for a rollout, so that its prefix stays cached
Breaker      leaves an endpoint alone after failures; RetryBudget bounds retries
Outage       which failures of an endpoint are logged
AdaptiveWidth
             adapts the number of calls that an endpoint is given
LoadReport   what an endpoint's metrics say of its load
ConcurrencyLimiter
             admits calls to the model service, first come, first served
"""

from gymmesh_model.routing.breaker import Breaker, RetryBudget
from gymmesh_model.routing.concurrency import AdaptiveWidth
from gymmesh_model.routing.limiter import ConcurrencyLimiter
from gymmesh_model.routing.load import LoadReport, Targets, overloaded, parse_load
from gymmesh_model.routing.pool import Pool, PoolEndpoint, identity
from gymmesh_model.routing.router import Router, ranking

__all__ = [
    "AdaptiveWidth",
    "Breaker",
    "ConcurrencyLimiter",
    "LoadReport",
    "Pool",
    "PoolEndpoint",
    "RetryBudget",
    "Router",
    "Targets",
    "identity",
    "overloaded",
    "parse_load",
    "ranking",
]

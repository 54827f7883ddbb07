"""Where a process listens, and the address at which others reach it.

reachable   the host that a process registers
listening   which addresses others can reach, and what they could do there
"""

from gymmesh_runtime.addresses.listening import (
    METRICS_HARM,
    SERVICES_HARM,
    TOOLS_HARM,
    at_port,
    exposure,
    family_of,
    free_port,
    is_local,
    log_exposure,
)
from gymmesh_runtime.addresses.reachable import advertised, is_wildcard

__all__ = [
    "METRICS_HARM",
    "SERVICES_HARM",
    "TOOLS_HARM",
    "advertised",
    "at_port",
    "exposure",
    "family_of",
    "free_port",
    "is_local",
    "is_wildcard",
    "log_exposure",
]

"""The parts of a server process; gymmesh_runtime/serve.py combines them.

service           the interface of a service, for serve.py
loop              the event loop, and its rarer garbage collection
process_limits    the limits of the system: files, memory, threads
processors        how many processors the process may use
spare_memory      returns freed memory to the system
exposition        serves metrics over HTTP
registration      keeps an instance registered
directory_watch   follows which instances are alive
relayed           serves over a connection that this process dials
"""

from gymmesh_runtime.serving.directory_watch import DirectoryWatch
from gymmesh_runtime.serving.exposition import MetricsEndpoint, heartbeat
from gymmesh_runtime.serving.http_connections import HttpConnections, requests_log
from gymmesh_runtime.serving.loop import run, run_bounded
from gymmesh_runtime.serving.process_limits import allow_files, limit_met, prepare_process
from gymmesh_runtime.serving.processors import usable_processors
from gymmesh_runtime.serving.registration import DiscoveryPeer, Registration
from gymmesh_runtime.serving.relayed import RELAYED_IDENTITY, RelayDialer, RelayedInstance
from gymmesh_runtime.serving.spare_memory import give_back_spare_memory

__all__ = [
    "RELAYED_IDENTITY",
    "DirectoryWatch",
    "DiscoveryPeer",
    "HttpConnections",
    "MetricsEndpoint",
    "Registration",
    "RelayDialer",
    "RelayedInstance",
    "allow_files",
    "give_back_spare_memory",
    "heartbeat",
    "limit_met",
    "prepare_process",
    "requests_log",
    "run",
    "run_bounded",
    "usable_processors",
]

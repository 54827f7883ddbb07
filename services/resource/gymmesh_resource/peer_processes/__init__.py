"""Calls scripts of other frameworks, each in its own process and interpreter.

A script is a file that the framework's own interpreter runs: it needs the standard library and
the framework, and nothing of this project. It defines ``METHODS``, see `peer_main`.

peer_process   one process: starts it, calls its methods, ends it with all that it started
blocking       a process for a short time, from code that is not async
shared_peer    the process that an environment's sessions share, started again after a loss
errors         how calls fail
guard          the process between: nothing of the peer outlives it (run as a file)
peer_main      the other side: reads calls, runs the script's methods (run as a file)
"""

from gymmesh_resource.peer_processes.blocking import with_process
from gymmesh_resource.peer_processes.errors import PeerFault, PeerLost, PeerRaised, PeerTimeout
from gymmesh_resource.peer_processes.peer_process import PeerOptions, PeerProcess
from gymmesh_resource.peer_processes.shared_peer import SharedPeer

__all__ = [
    "PeerFault",
    "PeerLost",
    "PeerOptions",
    "PeerProcess",
    "PeerRaised",
    "PeerTimeout",
    "SharedPeer",
    "with_process",
]

"""Steering a run from outside: RunService, served by the collector that runs it.

handle         what a run must offer to be steered
collector_run  a collector's run as a handle
servicer       gymmesh.run.v1.RunService over handles, for callers that hold the token
server         its server, and the registry entry by which this user's terminals find it
registry       the entries: a small file for each run
remote         finds runs and calls them
"""

from gymmesh_client.control.handle import RunHandle
from gymmesh_client.control.remote import RemoteRun, find_run, open_runs
from gymmesh_client.control.server import RunServer
from gymmesh_client.control.servicer import RunServicer

__all__ = ["RemoteRun", "RunHandle", "RunServer", "RunServicer", "find_run", "open_runs"]

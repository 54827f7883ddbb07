"""Steering a run from outside: RunService, served by the collector that runs it.

servicer       gymmesh.run.v1.RunService over handles of runs, and its server
collector_run  a collector's run as a handle
registry       the entries: a small file for each run
remote         finds runs and calls them
"""

from gymmesh_client.control.collector_run import CollectorRun
from gymmesh_client.control.registry import read_entries
from gymmesh_client.control.remote import RemoteRun, find_run, open_runs
from gymmesh_client.control.servicer import RunHandle, RunServer, RunServicer

__all__ = [
    "CollectorRun",
    "RemoteRun",
    "RunHandle",
    "RunServer",
    "RunServicer",
    "find_run",
    "open_runs",
    "read_entries",
]

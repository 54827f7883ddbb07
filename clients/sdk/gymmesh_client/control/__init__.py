"""Steering a run from outside: RunService, served by the collector that runs it.

servicer       gymmesh.run.v1.RunService over handles of runs, and its server
collector_run  a collector's run as a handle
registry       the entries: a small file for each run
remote         finds runs and calls them
consumer       one of several consumers that share a run's groups
stream_server  serves groups to trainers on other machines
"""

from gymmesh_client.control.collector_run import CollectorRun
from gymmesh_client.control.consumer import GroupConsumer
from gymmesh_client.control.registry import read_entries
from gymmesh_client.control.remote import RemoteRun, find_run, open_runs, runs_at
from gymmesh_client.control.servicer import RunHandle, RunServer, RunServicer
from gymmesh_client.control.stream_server import StreamServer, stream_security

__all__ = [
    "CollectorRun",
    "GroupConsumer",
    "RemoteRun",
    "RunHandle",
    "RunServer",
    "RunServicer",
    "StreamServer",
    "find_run",
    "open_runs",
    "read_entries",
    "runs_at",
    "stream_security",
]

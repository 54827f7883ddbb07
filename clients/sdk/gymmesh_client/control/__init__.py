"""Steering a run from outside: RunService, served by the collector that runs it.

handle      what a run must offer to be steered
servicer    gymmesh.run.v1.RunService over handles, for those who hold the token
desk        the server, and the note by which other terminals of this user find it
remote      finds runs and calls them
"""

from gymmesh_client.control.desk import RunDesk
from gymmesh_client.control.handle import RunHandle
from gymmesh_client.control.remote import RemoteRun, find_run, open_runs
from gymmesh_client.control.servicer import RunServicer

__all__ = ["RemoteRun", "RunDesk", "RunHandle", "RunServicer", "find_run", "open_runs"]

"""Figures and some rollouts at a tracker (W&B, MLflow or Trackio): of a run, live, or a profile.

measures.py   a run's figures for a tracker: names and numbers (pure)
samples.py    which rollouts go into the table of samples, and what of them (pure)
live.py       while a collector runs: measures and tables, now and then
profiled.py   a profile, sent once
link.py       the tracker's process, seen from the collector: bounded, and no harm to it
process.py    what runs there: it calls the tracker's library
libraries.py  one class for each tracker

The library runs in a process of its own, which gym-cli feeds through a pipe. So nothing that
it does, waits for, prints or installs at exit can slow or end a run; a collector that is killed
leaves a tracker's run that is closed properly.
"""

from gymmesh_data.track.link import TrackerLink
from gymmesh_data.track.live import Tracking
from gymmesh_data.track.names import DEFAULT_PROJECT, TRACKERS, TrackerRun, extra_of
from gymmesh_data.track.profiled import ProfileTracking

__all__ = [
    "DEFAULT_PROJECT",
    "TRACKERS",
    "ProfileTracking",
    "TrackerLink",
    "TrackerRun",
    "Tracking",
    "extra_of",
]

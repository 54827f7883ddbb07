"""Sends figures and sampled rollouts to a tracker (W&B, MLflow or Trackio), of an active run or of
a profile.

measures.py   a run's figures for a tracker: names and numbers (pure)
samples.py    which rollouts go into the table of samples, and what of them (pure)
live.py       while a collector runs: measures and tables, now and then
profiled.py   a profile, sent once
link.py       the tracker's process, seen from the collector: bounded, and no harm to it
process.py    what runs there: it calls the tracker's library
libraries.py  one class for each tracker

The library runs in a process of its own, which gym-cli feeds through a pipe. So the library can
neither slow nor end a run, whatever it does, prints or installs at exit. If the collector is
killed, the process still closes the tracker's run.
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

"""The tracker's process: `python -m gymmesh_data.track.process TRACKER`.

Reads commands as lines of JSON on standard input, and writes their results to standard output:

    {"do": "begin", …}         {"begun": {"id": …, "url": …}} or {"refused": why}
    {"do": "measures", …}      nothing, or {"failed": why}
    {"do": "table", …}         as for measures
    {"do": "end", …}           {"ended": true}, perhaps after {"failed": why}

If the input ends without an `end`, the collector was killed. The process then ends the run, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from gymmesh_data.track.libraries import Tracker, tracker_of
from gymmesh_data.track.names import TrackerRun
from gymmesh_responses import dumps, loads


def main() -> None:
    """Run until the input ends."""
    # What the libraries print is not for the collector.
    told = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(**message: Any) -> None:
        told.write(dumps(message) + b"\n")

    messages = map(loads, sys.stdin.buffer)
    try:
        begin = next(messages)
        begin.pop("do")
        tracker = tracker_of(sys.argv[1])
        say(begun=tracker.begin(TrackerRun(**begin)))
    except StopIteration:
        return
    except Exception as error:  # whatever the library raises
        say(refused=sentence(error))
        return
    for why in _serve(tracker, messages):
        say(failed=why)
    say(ended=True)


def _serve(tracker: Tracker, messages: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Do as the messages say, and end the tracker's run; why what failed did."""
    config: dict[str, Any] = {}
    finished = False
    for message in messages:
        try:
            if message["do"] == "measures":
                tracker.measures(message["step"], message["values"])
            elif message["do"] == "table":
                tracker.table(message["step"], message["columns"], message["rows"])
            else:
                config, finished = message["config"], message["finished"]
        except Exception as error:
            yield sentence(error)
    try:
        tracker.end(config, finished=finished)
    except Exception as error:
        yield sentence(error)


def sentence(error: Exception) -> str:
    """The first line of a library's error, shortened."""
    lines = str(error).strip().splitlines()
    said = lines[0].strip().rstrip(".") if lines else ""
    return f"{type(error).__name__}: {said}"[:300] if said else type(error).__name__


if __name__ == "__main__":
    main()

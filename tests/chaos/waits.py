"""Whether anything was waited for past its deadline, and how collectors ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tests.chaos.folder import Folder

# What a collector adds to an attempt's time before it leaves an agent that does not end it, and
# what a busy machine may add to that.
_LEAVES_S: Final = 5.0
_BUSY_S: Final = 5.0
_CLEAN: Final = (0, 3)


def late_attempts(folder: Folder, timeout_s: float) -> Iterable[str]:
    """Attempts that took longer than their time, those included that a collector died with.

    A collector that was stopped could do nothing meanwhile: that time is its attempts' too.
    """
    sessions = folder.read("sessions.json")
    pauses = [one for one in folder.read("faults.json") if _pauses(one)]
    open_: dict[tuple[str, int], float] = {}
    ends: list[tuple[tuple[str, int], float, float]] = []
    for ack in folder.acknowledged():
        key = (ack["rollout"], ack["attempt"])
        if ack["what"] == "sent":
            open_[key] = ack["at"]
        elif ack["what"] == "ended" and key in open_:
            ends.append((key, open_.pop(key), ack["at"]))
    for key, at in open_.items():
        died = [one["ended"] for one in sessions if one["ended"] >= at]
        ends.append((key, at, min(died, default=float("inf"))))
    for (rollout, attempt), begun, ended in ends:
        lost = sum(
            one["seconds"]
            for one in pauses
            if one["at"] < ended and begun < one["at"] + one["seconds"]
        )
        allowed = timeout_s + _LEAVES_S + _BUSY_S + lost
        if ended - begun > allowed:
            took = f"{ended - begun:.1f} s, limit {allowed:.1f} s"
            yield f"attempt {attempt} of {rollout} took {took}"


def _pauses(fault: dict[str, Any]) -> bool:
    return bool(fault["kind"] == "stop" and fault["target"] == "collector")


def unclean_sessions(folder: Folder) -> Iterable[str]:
    """A collector ends by being killed, or with one sentence; the last one ends the run."""
    sessions = folder.read("sessions.json")
    for number, one in enumerate(sessions):
        if one["ended_by"]:
            continue
        words = [line for line in one["stderr"] if line.strip()]
        if any("Traceback" in line for line in words):
            yield f"collector process {number} printed a traceback: {words[-1]}"
        elif one["code"] not in _CLEAN and not (one["code"] == 1 and _sentence(words)):
            yield (
                f"collector process {number} failed with the exit code {one['code']}: "
                f"{' | '.join(words[-3:])}"
            )
    if not sessions or sessions[-1]["ended_by"] or sessions[-1]["code"] not in _CLEAN:
        yield "the run did not end within its time limit"


def _sentence(words: list[str]) -> bool:
    return len(words) == 1 and words[0].startswith("gym-cli: ")

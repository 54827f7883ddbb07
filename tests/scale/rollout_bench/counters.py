"""What the processor itself counts while processes run: its cycles and instructions, by `perf`.

CPU time is what the system charges, and on a shared machine it charges a process for moments in
which the processor ran somebody else's work. Cycles are counted only while a process really runs.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

_EVENTS: Final = "cycles,instructions:u"
_ACK_S: Final = 10.0


@dataclass(slots=True)
class Counted:
    """What was counted over all processes; zero until the counting has ended.

    `cycles` are those of user space and the kernel, `instructions` those of user space.
    """

    cycles: int = 0
    instructions: int = 0


def available() -> bool:
    """Whether `perf` is installed and this machine lets it count."""
    if shutil.which("perf") is None:
        return False
    line = ["perf", "stat", "-x,", "-e", _EVENTS, "true"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.returncode == 0 and all(_figures(done.stderr).values())


@contextmanager
def counting(pids: Iterable[int]) -> Iterator[Counted]:
    """Counts what the processes, and the threads they start meanwhile, do within this block.

    Raises RuntimeError and OSError when perf can't count them.
    """
    counted = Counted()
    order, orders = os.pipe()  # perf reads its orders from one, and says "ack" on the other
    acks, ack = os.pipe()
    with tempfile.NamedTemporaryFile("r") as out:
        line = ["perf", "stat", "-x,", "-e", _EVENTS, "-o", out.name, "--delay=-1"]
        line += [f"--control=fd:{order},{ack}", "-p", ",".join(map(str, pids))]
        perf = subprocess.Popen(line, pass_fds=(order, ack), stderr=subprocess.DEVNULL)
        os.close(order)  # perf's alone, so that it is heard when perf ends
        os.close(ack)
        try:
            _tell(orders, acks, b"enable\n")
            yield counted
            _tell(orders, acks, b"disable\n")
        finally:
            perf.send_signal(signal.SIGINT)
            perf.wait(30)
            os.close(orders)
            os.close(acks)
        found = _figures(out.read())
    counted.cycles, counted.instructions = found["cycles"], found["instructions:u"]


def _tell(orders: int, acks: int, order: bytes) -> None:
    os.write(orders, order)
    heard, _, _ = select.select([acks], [], [], _ACK_S)
    if not heard or not os.read(acks, 16):
        raise RuntimeError(f"perf does not {order.decode().strip()} its counters")


def _figures(text: str) -> dict[str, int]:
    """The figures of perf's lines `FIGURE,UNIT,EVENT,…`; zero for what it could not count."""
    found = dict.fromkeys(_EVENTS.split(","), 0)
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2] in found and fields[0].isdigit():
            found[fields[2]] = int(fields[0])
    return found

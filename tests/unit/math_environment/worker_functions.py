"""Functions the pool's tests run in worker processes, found there by module and name."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


class NotPicklableError(Exception):
    """An exception that does not survive a pickle."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one}, {two}")
        self.lock = threading.Lock()


def double(value: int) -> int:
    return 2 * value


def process_id() -> int:
    return os.getpid()


def write_process_id_and_hang(path: str) -> None:
    write_process_id(path)
    hang()


def write_process_id(path: str) -> None:
    partial = Path(path + ".partial")
    partial.write_text(str(os.getpid()), encoding="utf-8")
    partial.rename(path)


def end_children_by_signal(path: str, go: str) -> int:
    """Says its process id, waits for the other file, and gives how a child of its own ended."""
    write_process_id(path)
    while not Path(go).exists():
        time.sleep(0.01)
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.terminate()
    return child.wait()


def hang() -> None:
    while True:
        time.sleep(1)


def spin() -> None:
    while True:
        pass


def end_its_output_and_then_itself() -> None:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_WRONLY:
                os.close(int(name))
    time.sleep(1.5)
    os.kill(os.getpid(), signal.SIGPROF)


def hang_with_the_interpreter_lock() -> int:
    return len(str(9 ** (9**9)))


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(status: int) -> None:
    os._exit(status)


def exit_politely() -> None:
    sys.exit(3)


def refuse(reason: str) -> None:
    raise KeyError(reason)


def refuse_oddly() -> None:
    raise NotPicklableError(1, 2)


def give_a_lock() -> object:
    return threading.Lock()


def print_and_read() -> str:
    print("this is no frame")
    subprocess.run(["echo", "nor is this"], check=True)
    return sys.stdin.read()


def use_memory() -> int:
    return len(bytearray(8 * 1024**3))


def broken_warm_up() -> None:
    raise RuntimeError("no such model")


def size_of(text: str) -> int:
    return len(text)

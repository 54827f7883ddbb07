"""The code of a worker process of `process_pool`: runs one call at a time, until its input ends.

Invariant: when the parent ends, in any way, the worker ends soon after.

The file is started by its path, imports the standard library only and speaks frames (a 4-byte
big-endian length, then a pickle) over its standard input and output. Because it is not started
by `multiprocessing`, the parent's main module is never imported again, so a trainer's script
needs no ``if __name__ == "__main__"`` for our sake.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import operator
import os
import pickle
import select
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

HEADER = struct.Struct(">I")
PROTOCOL = pickle.HIGHEST_PROTOCOL
# Linux: <linux/prctl.h>, "send me this signal when the thread that made me ends".
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Take over standard input and output for frames, start up, and serve calls."""
    # Whoever ends a service may signal all its processes, as Slurm does. The service ends its
    # workers itself, once the calls that it drains have ended. A handler, and not SIG_IGN, which
    # programs that the call starts would inherit.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    requests, replies = _claim_streams()
    start = read_frame(requests)
    if start is None:
        return
    _end_with_parent(start["parent"], requests)
    try:
        sys.path[:] = start["path"]
        _limit_memory(start["memory_limit"])
        if start["warm_up"] is not None:
            resolve(start["warm_up"])()
    except BaseException:
        write_frame(replies, pickle.dumps(("failed", traceback.format_exc())))
        return
    write_frame(replies, pickle.dumps(("ready", None)))
    while (call := read_frame(requests)) is not None:
        write_frame(replies, _perform(*call))


def _claim_streams() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the parent, out of reach of prints and reads in the code that is called."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return requests, replies


def _end_with_parent(parent: int, requests: BinaryIO) -> None:
    """Die with the parent, also in the middle of a call that never returns."""
    if sys.platform == "linux":
        # The kernel's own signal works even while C code holds the interpreter lock.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
    threading.Thread(target=_exit_at_hangup, args=(requests,), daemon=True).start()


def _exit_at_hangup(requests: BinaryIO) -> None:
    poll = select.poll()
    poll.register(requests, 0)  # 0: no data events, only hang-up and errors
    poll.poll()
    os._exit(0)


def _limit_memory(limit: int | None) -> None:
    if limit is not None:
        import resource  # not on every platform

        with contextlib.suppress(ValueError, OSError):  # macOS refuses this limit
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _perform(reference: str, arguments: tuple[Any, ...]) -> bytes:
    """Call a function; gives the pickled answer."""
    try:
        return pickle.dumps(("result", resolve(reference)(*arguments)), PROTOCOL)
    except (MemoryError, SystemExit):
        raise  # what is left of the process is not to be trusted, or the function wants it to end
    except BaseException as error:
        return pickle.dumps(_describe(error), PROTOCOL)


def _describe(error: BaseException) -> tuple[str, Any]:
    """The exception itself where it survives a pickle, else its text."""
    called = error.__traceback__ and error.__traceback__.tb_next  # without the frame of ours
    trace = "".join(traceback.format_exception(error.with_traceback(called)))
    try:
        pickle.loads(pickle.dumps(error))
    except BaseException:
        return "error", (None, trace)
    return "error", (error if isinstance(error, Exception) else None, trace)


def resolve(reference: str) -> Callable[..., Any]:
    """The function a ``module:qualified.name`` stands for."""
    module, _, name = reference.partition(":")
    function: Callable[..., Any] = operator.attrgetter(name)(importlib.import_module(module))
    return function


def read_frame(stream: BinaryIO) -> Any:
    """The next frame, or None at the end of the stream."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    body = stream.read(size)
    return pickle.loads(body) if len(body) == size else None


def write_frame(stream: BinaryIO, body: bytes) -> None:
    """Send one pickle."""
    stream.write(HEADER.pack(len(body)) + body)
    stream.flush()


if __name__ == "__main__":
    main()

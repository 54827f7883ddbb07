"""The limits of this process: files and memory. They are checked before gRPC starts, because gRPC
aborts the process if it gets no memory, thread or file.
"""

from __future__ import annotations

import errno
import resource
from contextlib import suppress
from typing import Final

from gymmesh_runtime.config import ConfigError

_LEAST_FILES: Final = 64
_MOST_FILES: Final = 65_536
# Of addresses, most of which are never used: threads' stacks, and allocators' arenas.
_LEAST_ADDRESSES: Final = 1 << 30


def prepare_process() -> None:
    """Raise the limit of open files as far as the user may, to at most 65,536. Raises ConfigError
    if the limit of files, or of memory, is too low to serve or call anything.
    """
    allow_files(_MOST_FILES)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _LEAST_FILES:
        raise ConfigError(
            f"this process may open at most {files} files, but needs {_LEAST_FILES}. "
            "Raise the limit with `ulimit -n 4096`"
        )
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and addresses < _LEAST_ADDRESSES:
        raise ConfigError(
            f"this process may map at most {addresses >> 20} MiB of memory, but needs "
            f"{_LEAST_ADDRESSES >> 20} MiB (mostly reserved address space, not used memory). Raise "
            "the limit with `ulimit -v unlimited`"
        )


def allow_files(count: int) -> None:
    """Raise this process's limit of open files to ``count``, or as far as its user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        with suppress(OSError, ValueError):  # of a system that allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def limit_met(error: BaseException) -> str:
    """A sentence for an error caused by a limit of the process or system; empty for others."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(limit_met, error.exceptions)), "")
    no_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if no_memory or isinstance(error, MemoryError):
        return (
            "the process is out of memory. Raise the limit with `ulimit -v unlimited`, or lower "
            "the concurrency"
        )
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "the process has too many open files. Raise the limit with `ulimit -n 4096`"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return (
            "the process can't start a thread. Raise the limit with `ulimit -u unlimited` or "
            "`ulimit -v unlimited`"
        )
    return ""

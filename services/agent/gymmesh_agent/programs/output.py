"""A program's output: its end for the rollout's event, all of it for a log file."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

_UNSAFE: Final = re.compile(r"[^\w.-]")
_TAIL_BYTES: Final = 4096
_LONGEST_NAME: Final = 200


class OutputTail:
    """Keeps the last bytes of both streams, in the order of arrival, without the secret."""

    def __init__(self, secret: str, most: int = _TAIL_BYTES) -> None:
        self._secret = secret.encode()
        self._shown = most
        # A secret that begins before what is shown is known by its whole length.
        self._most = most + len(self._secret)
        self._kept = bytearray()

    def take(self, name: Literal["stdout", "stderr"], data: bytes) -> None:
        """Add the next piece of a stream."""
        self._kept += data[-self._most :]
        del self._kept[: -self._most]

    @property
    def kept(self) -> bytes:
        """The end of the output."""
        return masked(bytes(self._kept), self._secret)[-self._shown :]


class OutputLog:
    """A file with a program's whole output, up to a limit; secrets are masked.

    folder: None: nothing is written. Use it as a context manager. After a disk error the log ends,
    and the rollout continues.
    """

    def __init__(self, folder: Path | None, name: str, secret: str, most: int) -> None:
        self._path = None if folder is None else folder / log_name(name)
        self._secret = secret.encode()
        self._left = most
        self._file: int | None = None
        self._held = b""

    def __enter__(self) -> OutputLog:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._write(masked(self._held, self._secret))
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def take(self, name: Literal["stdout", "stderr"], data: bytes) -> None:
        """Add the next piece of a stream."""
        if self._file is None or self._left <= 0:
            return
        # A secret may lie across two pieces.
        found = masked(self._held + data, self._secret)
        keep = min(len(self._secret), len(found))
        self._held = found[len(found) - keep :]
        self._write(found[: len(found) - keep])

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            os.write(self._file, data[: self._left])
        self._left -= len(data)


def masked(data: bytes, secret: bytes) -> bytes:
    """Bytes without the rollout's key."""
    return data.replace(secret, b"***") if secret else data


def log_name(name: str) -> str:
    """A valid file name for an attempt, whatever its rollout's name is."""
    return f"{_UNSAFE.sub('_', name)[-_LONGEST_NAME:]}.log"

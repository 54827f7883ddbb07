"""What an earlier process of an instance left, and a folder for this process.

An instance id is unique among the instances of a mesh, but several meshes on one machine may use
the same id. So each process (a *life* of the instance) holds a lock. If the lock of a mark is free,
everything with this mark was left by a process that is gone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gymmesh_runtime.config import ConfigError

_LIVES: Final = 1000


class Life:
    """One life of an instance, from `begin` until `end`, or until the process ends.

    Args:
        instance_id: the instance's id.
        base: the folder of all lives; empty: below the system's temporary folder.

    Attributes:
        mark: the mark of everything that the backend creates; unique among all running lives.
        left: the marks of earlier lives that may have left something; this life's first.
        folder: for this life's files; removed at its end.
    """

    def __init__(self, instance_id: str, base: str = "") -> None:
        self._instance_id = instance_id
        self._base = Path(base or Path(tempfile.gettempdir()) / f"gymmesh-sandbox-{os.getuid()}")
        self._lock = -1
        self.mark = ""
        self.left: list[str] = []
        self.folder = ""

    def begin(self) -> None:
        """Takes the first mark that no life holds. Raises ConfigError."""
        name = hashlib.sha256(self._instance_id.encode()).hexdigest()[:16]
        try:
            self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._base.stat().st_uid != os.getuid():
                raise ConfigError(f"{self._base} belongs to another user; remove this folder")
            for number, file in self._places(name):
                lock = _locked(file)
                if lock < 0:
                    continue
                mark = f"{self._instance_id}~{number}" if number else self._instance_id
                self.left.append(mark)
                if self._lock < 0:
                    self._lock, self.mark = lock, mark
                    folder = file.with_suffix("")
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir(mode=0o700)
                    self.folder = str(folder)
                else:
                    shutil.rmtree(file.with_suffix(""), ignore_errors=True)
                    os.close(lock)
        except OSError as error:
            raise ConfigError(
                f"the sandbox service cannot write to {self._base}: {error.strerror}"
            ) from None

    def end(self) -> None:
        """Removes this life's files; may be called twice."""
        if self._lock >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def _places(self, name: str) -> Iterator[tuple[int, Path]]:
        """The places that were used, and the next one."""
        for number in range(_LIVES):
            file = self._base / f"{name}-{number}.lock"
            known = file.exists()
            if not known and self._lock >= 0:
                return
            yield number, file
            if not known and self._lock >= 0:
                return


def _locked(file: Path) -> int:
    """The file, opened and locked; negative: another process holds the lock."""
    number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return -1
    return number

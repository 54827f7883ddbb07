"""A disk that loses power: what was written and not synced is there in part, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gymmesh_client.disk import Disk


class PowerCut(BaseException):
    """The machine stopped in the middle of an operation."""


class CrashingDisk(Disk):
    """Counts operations, stops at one of them, and knows what of each file is on disk."""

    def __init__(self) -> None:
        self.stop_after: int | None = None
        self._paths: dict[int, Path] = {}
        self._durable: dict[Path, bytes] = {}

    def open(self, path: Path) -> int:
        durable = path.read_bytes() if path.exists() else b""
        fd = super().open(path)
        self._durable.setdefault(path, durable)
        self._paths[fd] = path
        return fd

    def write(self, fd: int, data: bytes, offset: int) -> None:
        self._tick(lambda: super(CrashingDisk, self).write(fd, data[: len(data) // 2], offset))
        super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        self._tick()
        super().sync(fd)
        path = self._paths.get(fd)
        if path is not None:
            self._durable[path] = path.read_bytes()

    def cut(self, fd: int, size: int) -> None:
        self._tick()
        super().cut(fd, size)

    def replace(self, draft: Path, path: Path) -> None:
        self._tick()
        super().replace(draft, path)
        self._durable[path] = self._durable.pop(draft, path.read_bytes())
        self._paths = {fd: path if at == draft else at for fd, at in self._paths.items()}

    def lose_power(self, keep: Callable[[int], int], *, backwards: bool) -> None:
        """Leave of each file a mixture of what is on disk and what was written since.

        Args:
            keep: given a number of bytes, says after how many the one ends and the other begins.
            backwards: the end of what was written since is there, and not its beginning.
        """
        for path, durable in list(self._durable.items()):
            if not path.exists():
                continue
            now = path.read_bytes()
            if now == durable:
                continue
            at = keep(max(len(now), len(durable)))
            if backwards:
                left = durable[:at].ljust(min(at, len(now)), b"\0") + now[at:]
            else:
                begun = now[:at]  # shorter where the file was cut: what follows stays in its place
                left = begun + durable[len(begun) :]
            path.write_bytes(left)
            self._durable[path] = left

    def _tick(self, half: Callable[[], None] = lambda: None) -> None:
        if self.stop_after is None:
            return
        if self.stop_after == 0:
            half()
            raise PowerCut
        self.stop_after -= 1

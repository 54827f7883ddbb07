"""The tasks below a folder, found and read by their paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from gymmesh_resource.environments.harbor.task import HarborTask, TaskRefused
from gymmesh_resource.environments.harbor.task_toml import read_harbor
from gymmesh_resource.environments.harbor.terminal_bench import FILE as TERMINAL_BENCH_FILE
from gymmesh_resource.environments.harbor.terminal_bench import read_terminal_bench
from gymmesh_resource.environments.harbor.toml_schema import FILE as HARBOR_FILE

_READERS: Final = {HARBOR_FILE: read_harbor, TERMINAL_BENCH_FILE: read_terminal_bench}
_TEMPLATE: Final = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)


class TaskFolders:
    """A folder of task folders, or one task folder. Invariant: every path is inside of it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def names(self) -> Iterator[str]:
        """The tasks' paths below the folder, sorted; `.` for the folder itself."""
        if _form(self._root):
            yield "."
        else:
            yield from self._below(self._root)

    def _below(self, folder: Path) -> Iterator[str]:
        for one in sorted(folder.iterdir()):
            if one.is_symlink() or not one.is_dir() or one.name.startswith("."):
                continue
            if _form(one):
                yield one.relative_to(self._root).as_posix()
            else:
                yield from self._below(one)

    def task_id(self, name: str) -> str:
        """The id of a task's row."""
        return self._root.name if name == "." else name

    def has_steps(self, name: str) -> bool:
        """Whether a task has several steps; False for a rejected task."""
        try:
            return len(self.read(name).steps) > 1
        except TaskRefused:
            return False

    def read(self, name: str) -> HarborTask:
        """A task. Raises TaskRefused."""
        folder = (self._root / name).resolve()
        if not folder.is_relative_to(self._root):
            raise TaskRefused("", "is outside the folder that the option 'tasks' names")
        form = _form(folder)
        if not form:
            raise TaskRefused("", f"is not a folder with {' or '.join(_READERS)}")
        return _READERS[form](folder)


def _form(folder: Path) -> str:
    return next((name for name in _READERS if (folder / name).is_file()), "")


def filled_in(env: Mapping[str, str], known: Mapping[str, str], place: str) -> dict[str, str]:
    """Variables, with each `${NAME}` or `${NAME:-default}` replaced by what is known.

    Only whole values are templates. This process's own variables are never read. Raises
    TaskRefused for a name that is not known and has no default.
    """
    filled: dict[str, str] = {}
    for name, value in env.items():
        found = _TEMPLATE.fullmatch(value)
        if found is None:
            filled[name] = value
            continue
        wanted, default = found.groups()
        if wanted not in known and default is None:
            raise TaskRefused(
                f"{place}.{name}",
                f"needs the variable {wanted}; set {wanted} in the option 'variables'",
            )
        filled[name] = known.get(wanted, default or "")
    return filled

"""The extras of gymmesh: optional libraries, and the sentence that says what to install.

Each part that needs an optional library declares an `Extra`, and calls `require` before it imports
the library. It calls `require` when the part is configured, not when the part runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from gymmesh_runtime.config import ConfigError


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra, as in `pip install 'gymmesh[NAME]'`, and the modules that it installs."""

    name: str
    modules: tuple[str, ...]

    def problem(self, part: str) -> str:
        """One sentence with the modules that `part` lacks and the command that installs them; empty
        if no module is missing.

        Imports only the packages that contain a module.
        """
        missing = [module for module in self.modules if not _is_there(module)]
        if not missing:
            return ""
        return f"{part} needs {', '.join(missing)}: pip install 'gymmesh[{self.name}]'"

    def require(self, part: str, *, path: str = "") -> None:
        """Raise ConfigError with the sentence of `problem` if a module is missing.

        `path`: the configuration key that needs the part.
        """
        if problem := self.problem(part):
            raise ConfigError(problem, path=path)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that would hold it
        return False

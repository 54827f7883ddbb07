"""The extras of gymmesh: optional libraries, and the sentence on what to install.

Each part that needs a library of its own declares an `Extra` and calls `require` before it imports
the library: the first time that the part is configured, not when it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from gymmesh_runtime.config import ConfigError


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra, as `pip install 'gymmesh[NAME]'` has it, and the modules that it brings."""

    name: str
    modules: tuple[str, ...]

    def problem(self, part: str) -> str:
        """One sentence: which modules `part` lacks and what to install; empty if none is missing.

        Nothing is imported but the packages that hold a module.
        """
        missing = [module for module in self.modules if not _is_there(module)]
        if not missing:
            return ""
        return f"{part} needs {', '.join(missing)}: pip install 'gymmesh[{self.name}]'"

    def require(self, part: str, *, path: str = "") -> None:
        """Raise ConfigError, with the sentence of `problem`, when a module is missing.

        `path`: the key of the configuration that asks for the part.
        """
        if problem := self.problem(part):
            raise ConfigError(problem, path=path)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that would hold it
        return False

"""Modules that people name in options: `package.module` or `folder/file.py`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


class _FileLoader(SourceFileLoader):
    """Compiles the file each time. Bytecode on disk is found by the second and size of its source:
    an edit within a second that keeps the size would run as it was before.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def file_spec(name: str, file: Path) -> ModuleSpec | None:
    """The import spec of a `.py` file; None if there is no such file."""
    if not file.is_file():
        return None
    return importlib.util.spec_from_file_location(name, file, loader=_FileLoader(name, str(file)))


def named_module(place: str) -> ModuleType:
    """The module for a dotted name or a `.py` file. A dotted name may be in the working directory.
    A `.py` file may import modules in its own folder.

    Raises ImportError, OSError, ValueError, and any error of the module itself.
    """
    if not place.endswith(".py"):
        _look_in(Path.cwd())
        return importlib.import_module(place)
    file = Path(place).resolve()
    name = f"gymmesh file {file}"
    if name in sys.modules:
        return sys.modules[name]
    spec = file_spec(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no file {place} (relative paths begin at {Path.cwd()})")
    _look_in(file.parent)
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _look_in(folder: Path) -> None:
    """Imports find modules of a folder, after all others: a console script does not look in the
    working directory by itself, as `python -m` does.
    """
    here = str(folder)
    if here not in sys.path and not ("" in sys.path and folder == Path.cwd()):
        sys.path.append(here)
    importlib.invalidate_caches()

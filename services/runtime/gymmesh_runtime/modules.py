"""Modules that people name in options: `package.module` or `folder/file.py`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def named_module(place: str) -> ModuleType:
    """The module of a dotted name, which may be in the working directory, or of a `.py` file, which
    may import what is beside it.

    Raises ImportError, OSError, ValueError, and what the module raises.
    """
    if not place.endswith(".py"):
        _look_in(Path.cwd())
        return importlib.import_module(place)
    file = Path(place).resolve()
    name = f"gymmesh file {file}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"there is no file {place}, seen from {Path.cwd()}")
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

"""Writes the folder of a new environment, from the templates in new_environment/."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from typing import Final

from gymmesh_runtime.config import ConfigError

_NAME: Final = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_FILES: Final = (
    "pyproject.toml",
    "README.md",
    "mesh.yaml",
    "package/__init__.py",
    "package/environment.py",
    "package/tasks.jsonl",
    "tests/test_environment.py",
)


def write_environment(name: str, parent: Path) -> list[Path]:
    """Write `<parent>/<name>/` and return its files. Raises ConfigError, also if the folder already
    exists.
    """
    if keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} is a Python keyword, so it is not a valid name of an environment. Use "
            f"another name, such as {name}_task"
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid name of an environment. Use lower-case letters, "
            "digits, _ and -, such as word_count"
        )
    folder = parent / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{folder} already exists. Choose another name, or another folder with --into"
        )
    package = f"{name.replace('-', '_')}_environment"
    words = {
        "@name@": name,
        "@folder@": package.replace("_", "-"),
        "@package@": package,
        "@class@": "".join(part.capitalize() for part in package.split("_")),
    }
    templates = files("gymmesh_cli.environments") / "new_environment"
    written = []
    for place in _FILES:
        text = templates.joinpath(*f"{place}.txt".split("/")).read_text(encoding="utf-8")
        for mark, word in words.items():
            text = text.replace(mark, word)
        target = folder / place.replace("package/", f"{package}/")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{target} cannot be written: {error.strerror}") from None
        written.append(target)
    return written

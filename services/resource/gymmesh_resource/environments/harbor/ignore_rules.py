"""Excludes files from a task's tests and solution: `.harborignore`, by the rules of `.gitignore`.

A `.harborignore` applies to its folder and below. A deeper file and a later line take precedence.
An excluded folder is excluded with everything in it. The `.harborignore` files themselves are
always excluded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from gymmesh_resource.environments.harbor.task import TaskFiles, TaskRefused, inside, read_text
from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILE: Final = ".harborignore"
_EXTRA: Final = Extra("harbor", ("pathspec",))
#: The rules of a folder and of those above it, the outermost first.
_Rules: TypeAlias = "tuple[tuple[Path, GitIgnoreSpec], ...]"


def files_of(folder: Path, part: str) -> TaskFiles:
    """A folder of a task, with the paths that its rules exclude. Raises TaskRefused.

    folder: the task's. part: the path of the folder in it, such as `tests`.
    """
    top = inside(folder, part)
    without = frozenset(_left_out(folder, top, top, ()))
    return TaskFiles(top, without)


def _left_out(task: Path, top: Path, folder: Path, above: _Rules) -> Iterator[str]:
    """The paths below a folder that are left out, from `top`; not what is in one of these."""
    rules = (*above, *_own_rules(task, folder))
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        path = Path(entry.path)
        shown = path.relative_to(top).as_posix()
        if entry.name == FILE or _excluded(rules, path, is_folder=entry.is_dir()):
            yield shown
        elif entry.is_symlink():
            target = path.resolve()
            if target.is_relative_to(top.resolve()) and _excluded(
                rules, top / target.relative_to(top.resolve()), is_folder=target.is_dir()
            ):
                yield shown
        elif entry.is_dir():
            yield from _left_out(task, top, path, rules)


def _own_rules(task: Path, folder: Path) -> _Rules:
    """The rules of a folder's own file; nothing where it has none."""
    file = folder / FILE
    if not file.exists() and not file.is_symlink():
        return ()
    name = file.relative_to(task).as_posix()
    if not file.is_file():
        raise TaskRefused(name, "is not a regular file")
    if problem := _EXTRA.problem("this file"):
        raise TaskRefused(name, problem)
    from pathspec import GitIgnoreSpec

    try:
        return ((folder, GitIgnoreSpec.from_lines(read_text(task, name).splitlines())),)
    except ValueError as error:
        raise TaskRefused(name, str(error)) from None


def _excluded(rules: _Rules, path: Path, *, is_folder: bool) -> bool:
    """Whether the last rule that speaks of a path leaves it out."""
    excluded = False
    for folder, spec in rules:
        if path.is_relative_to(folder):
            shown = path.relative_to(folder).as_posix()
            said = spec.check_file(f"{shown}/" if is_folder else shown).include
            excluded = excluded if said is None else said
    return excluded

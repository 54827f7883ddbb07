"""What `.harborignore` leaves out of a task's tests and solution, by the rules of `.gitignore`.

A file applies to its folder and below; a deeper file and a later line win, and nothing in a folder
that is left out comes back. The files themselves are always left out. Pure, but for the files that
it reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gymmesh_resource.environments.harbor.task import TaskFiles, TaskRefused, inside, read_text

FILE: Final = ".harborignore"
_NOTHING: Final = r"(?!)"  # a class without an end matches nothing
# A class of characters such as [a-z] or [!0-9].
_CLASS: Final = re.compile(r"\[(?P<no>[!^]?)(?P<set>\]?[^\]]*)\]")


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """A line: what it matches, whether that stays (`!`), and whether it is for folders alone."""

    pattern: re.Pattern[str]
    stays: bool
    only_folders: bool

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """path: from the folder of the rule's file, with slashes."""
        if self.only_folders and not is_folder:
            return False
        # Harbor asks about a folder with a slash at its end, and `a/**` then matches `a`, too.
        within = is_folder and self.pattern.pattern.endswith("/.*")
        return any(map(self.pattern.fullmatch, (path, f"{path}/") if within else (path,)))


def files_of(folder: Path, part: str) -> TaskFiles:
    """A folder of a task with what its rules leave out. Raises TaskRefused.

    folder: the task's. part: the path of the folder in it, such as `tests`.
    """
    top = inside(folder, part)
    without = frozenset(_left_out(folder, top, top, ()))
    return TaskFiles(top, without)


def rules_of(text: str) -> tuple[IgnoreRule, ...]:
    """The rules of a file's text. Raises ValueError for a line that is not a pattern."""
    return tuple(rule for line in text.splitlines() if (rule := _rule(line)) is not None)


def _left_out(
    task: Path, top: Path, folder: Path, above: tuple[tuple[Path, tuple[IgnoreRule, ...]], ...]
) -> Iterator[str]:
    """The paths below a folder that are left out, from `top`; not what is in one of these."""
    rules = (*above, (folder, _own_rules(task, folder)))
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


def _own_rules(task: Path, folder: Path) -> tuple[IgnoreRule, ...]:
    file = folder / FILE
    if not file.exists() and not file.is_symlink():
        return ()
    name = file.relative_to(task).as_posix()
    if not file.is_file():
        raise TaskRefused(name, "is not a regular file")
    try:
        return rules_of(read_text(task, name))
    except ValueError as error:
        raise TaskRefused(name, str(error)) from None


def _excluded(
    rules: tuple[tuple[Path, tuple[IgnoreRule, ...]], ...], path: Path, *, is_folder: bool
) -> bool:
    excluded = False
    for folder, own in rules:
        if not path.is_relative_to(folder):
            continue
        shown = path.relative_to(folder).as_posix()
        for rule in own:
            if rule.matches(shown, is_folder=is_folder):
                excluded = not rule.stays
    return excluded


def _rule(line: str) -> IgnoreRule | None:
    text = _without_spaces(line)
    if not text or text.startswith("#"):
        return None
    stays = text.startswith("!")
    text = text.removeprefix("!")
    only_folders = text.endswith("/")
    body = text.removesuffix("/")
    if not body or body == "/":
        if stays or not text:
            raise ValueError(f"has {line!r}, which is not a pattern")
        return None
    anchored = "/" in body
    regex = _regex(body.removeprefix("/"), line)
    prefix = "" if anchored else "(?:.*/)?"
    return IgnoreRule(re.compile(prefix + regex, re.DOTALL), stays, only_folders)


def _without_spaces(line: str) -> str:
    """A line without the spaces at its end, but for one behind a backslash."""
    text = line.rstrip()
    escaped = (len(text) - len(text.rstrip("\\"))) % 2 == 1
    return text + " " if escaped and len(text) < len(line) else text


def _regex(body: str, line: str) -> str:
    """The regular expression of a pattern without `!` and without slashes at its ends."""
    if body == "**":
        return ".+"
    made, place = "", 0
    while place < len(body):
        rest, character = body[place:], body[place]
        if rest.startswith("**/") and (place == 0 or body[place - 1] == "/"):
            made, place = made + "(?:.*/)?", place + 3
        elif rest == "**" and body[place - 1] == "/":
            made, place = made + ".*", place + 2
        elif character == "*":
            made, place = made + "[^/]*", place + 1
        elif character == "?":
            made, place = made + "[^/]", place + 1
        elif character == "[":
            found = _CLASS.match(rest)
            if found is None:
                return _NOTHING
            no = "^/" if found["no"] else ""
            made += f"(?!/)[{no}{_of_class(found['set'])}]"
            place += found.end()
        elif character == "\\":
            if place + 1 == len(body):
                raise ValueError(f"has {line!r}, which ends with a backslash")
            made, place = made + re.escape(body[place + 1]), place + 2
        else:
            made, place = made + re.escape(character), place + 1
    return made


def _of_class(text: str) -> str:
    """The inside of a class, for a regular expression, in which `-` alone keeps its meaning."""
    return re.sub(r"[\\\[\]^&~|]", lambda found: f"\\{found[0]}", text)

"""The workspace of a task row: its files, its setup, and its checks.

Invariant: a row that reads here can be run; everything else is TaskInvalid and names the key.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from gymmesh_resource import Task, TaskInvalid
from gymmesh_runtime.config import explained

VerifyPlace: TypeAlias = Literal["same", "fresh", "snapshot"]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_Amount = Annotated[int, msgspec.Meta(ge=0)]
_MOST_CHECKS: Final = 1000
#: From here on a key that is not read is one that is misspelt, and not the author's own.
_NEAR: Final = 0.8


class InlineFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a row, where a text alone does not do.

    content: its text. base64: its bytes instead. mode: permission bits in octal, such as `755`.
    """

    content: str | None = None
    base64: str | None = None
    mode: Annotated[str, msgspec.Meta(pattern="^[0-7]{3,4}$")] = "644"

    def data(self) -> bytes:
        """Its bytes. Raises ValueError."""
        if (self.content is None) == (self.base64 is None):
            raise ValueError("needs either the key 'content' or the key 'base64'")
        if self.content is not None:
            return self.content.encode("utf-8", "surrogatepass")
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except binascii.Error as error:
            raise ValueError(f"base64: {error}") from None


class FileSet(msgspec.Struct, frozen=True, kw_only=True):
    """Files from a row: inline ones, and a folder or an archive below the option `folder`."""

    files: dict[str, str | InlineFile] = {}
    folder: str = ""
    archive: str = ""

    def __bool__(self) -> bool:
        return bool(self.files or self.folder or self.archive)


class WorkspaceLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the sandbox may use, as SandboxSpec has it; 0: the sandbox service's default."""

    cpus: Annotated[float, msgspec.Meta(ge=0, le=1024)] = 0.0
    memory_mb: _Amount = 0
    disk_mb: _Amount = 0
    pids: _Amount = 0
    life_s: _Amount = 0


class TestFiles(FileSet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that are put into the sandbox once the agent has ended.

    path: the folder that they are put in. user: whose they are; empty: root, where the sandbox
    has other users than its own.
    """

    path: str = "/tests"
    user: str = ""


class WorkspaceCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that judges the workspace.

    run: a line for the shell, in the workspace. user: who runs it; empty: the sandbox's own user.
    name: of its component of the reward.
    weight: its share of the reward, in proportion to the other checks.
    exit_codes: those with which it passes. prints: a text that it also has to print; `{secret}`
        in it is a random text, the only line of the command's standard input.
    reward_file: a file to which the command writes its reward instead: a number from 0 to 1, or a
        JSON object of such numbers. Exit codes are then ignored, `prints` is not.
    timeout_s: seconds that it may take, without those in which it waited for a processor.
    """

    run: Annotated[str, msgspec.Meta(min_length=1)]
    name: Annotated[str, msgspec.Meta(max_length=120)] = ""
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    exit_codes: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)] = (0,)
    prints: str = ""
    reward_file: str = ""
    timeout_s: _Seconds = 60.0
    user: str = ""


class WorkspaceRow(FileSet, frozen=True, kw_only=True):
    """The keys of a row that the environment reads; others are left alone, unless
    they are nearly one of these.

    image, image_digest, user, workdir, env, limits: of the sandbox. setup: lines for the shell,
    run before the agent begins, each in at most setup_timeout_s seconds.
    tests, checks: what judges. verify_in: which sandbox they run in: the agent's own (`same`), a
    new one that gets a copy of the workspace (`fresh`) or of all files (`snapshot`).
    solution: a line for the shell that solves the task, for an audit.
    """

    checks: Annotated[list[WorkspaceCheck], msgspec.Meta(min_length=1, max_length=_MOST_CHECKS)]
    image: str = ""
    image_digest: str = ""
    user: str = ""
    workdir: str = ""
    env: dict[str, str] = {}
    limits: WorkspaceLimits = WorkspaceLimits()
    setup: list[str] = []
    setup_timeout_s: _Seconds = 50.0
    tests: TestFiles = TestFiles()
    verify_in: VerifyPlace = "fresh"
    solution: str = ""

    def named_checks(self) -> dict[str, WorkspaceCheck]:
        """The checks by the name of their component; without one they are numbered from 1."""
        return {one.name or f"check_{number}": one for number, one in enumerate(self.checks, 1)}


def read_row(task: Task) -> WorkspaceRow:
    """The row of a task. Raises TaskInvalid."""
    return _checked(_converted(task.payload))


def _converted(payload: Mapping[str, Any]) -> WorkspaceRow:
    _check_spelling(payload)
    if "checks" not in payload:
        raise TaskInvalid("checks", "is missing. Give the commands that judge the workspace")
    known = {name: payload[name] for name in WorkspaceRow.__struct_fields__ if name in payload}
    try:
        return msgspec.convert(known, WorkspaceRow)
    except msgspec.ValidationError as error:
        place, problem = explained(error, WorkspaceRow)
        raise TaskInvalid(place, f"{problem[:1].lower()}{problem[1:]}") from None


def _check_spelling(payload: Mapping[str, Any]) -> None:
    """Raises TaskInvalid for a key that is nearly one that is read: it would be left out."""
    known = WorkspaceRow.__struct_fields__
    for key in payload:
        if key not in known and (near := difflib.get_close_matches(key, known, 1, _NEAR)):
            raise TaskInvalid(
                key, f"is not a key of rows of the environment workspace. Did you mean {near[0]!r}?"
            )


def _checked(row: WorkspaceRow) -> WorkspaceRow:
    names = row.named_checks()
    if len(names) < len(row.checks):
        raise TaskInvalid("checks", "two checks have the same name")
    check_files("files", row)
    check_files("tests.files", row.tests)
    for key, path in (("workdir", row.workdir), ("tests.path", row.tests.path)):
        if path and (not path.startswith("/") or _leads_out(path)):
            raise TaskInvalid(key, f"{path!r} is not an absolute path")
    for index, check in enumerate(row.checks):
        if "\0" in check.run:
            raise TaskInvalid(f"checks[{index}].run", "has a zero byte")
    return row


def check_files(key: str, files: FileSet) -> None:
    """Raises TaskInvalid for a file that cannot be written."""
    for path, given in files.files.items():
        place = f"{key}[{path!r}]"
        if not path or path.startswith("/") or _leads_out(path) or "\0" in path:
            raise TaskInvalid(place, "must be a relative path that stays inside the folder")
        if isinstance(given, InlineFile):
            try:
                given.data()
            except ValueError as error:
                raise TaskInvalid(place, str(error)) from None


def _leads_out(path: str) -> bool:
    return ".." in PurePosixPath(path).parts

"""A workspace's row as a task folder of Harbor. Pure, but for the files that the row names.

The agent's sandbox is built from the row's image, its files and its set-up. Checks become one
script, which writes the weighted mean of their scores; with `verify_in: fresh` it runs in a sandbox
of its own that gets the workspace, as here. What the format cannot say is refused by its key.
"""

from __future__ import annotations

import io
import json
import math
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final, Literal

from gymmesh_resource import Task, TaskInvalid
from gymmesh_resource.environments.workspace.row import FileSet, WorkspaceCheck, WorkspaceRow
from gymmesh_resource.environments.workspace.sources import TaskFolder, packed_inline
from gymmesh_resource.folder_files import FolderFile
from gymmesh_responses import text_of

_WORKDIR: Final = "/workspace"
_TESTS: Final = "/tests"
_SCRIPT: Final = "test.sh"
_FILES: Final = "files"
_SECRET: Final = "{secret}"
_CHECKS_HEAD: Final = r"""#!/bin/sh
# Runs the checks, each within its time, and writes the weighted mean of their scores.
newline='
'
reward=0 failed=0 scores=
new_secret() { secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n'); }
check() { # NAME WEIGHT SECONDS EXIT_CODES WANTED STDIN COMMAND
  output=$(printf %s "$6" | timeout -k 1 "$3" /bin/sh -c "$7" 2>&1; printf '\n%s' "$?")
  code=${output##*"$newline"} output=${output%"$newline"*} score=0
  case " $4 " in *" $code "*) case $output in *"$5"*) score=1 ;; esac ;; esac
  printf '%s: %s, exit code %s\n%s\n' "$1" "$score" "$code" "$output"
  [ "$score" = 1 ] || failed=1
  scores="$scores, $1: $score"
  reward=$(awk "BEGIN { printf \"%.17g\", $reward + $2 * $score }")
}
"""
_CHECKS_END: Final = r"""
[ "$failed" = 1 ] || reward=1
printf '{"reward": %s%s}\n' "$reward" "$scores" >/logs/verifier/reward.json
"""


def harbor_files(
    task: Task,
    row: WorkspaceRow,
    folder: TaskFolder,
    network: object,
    checks_network: object,
) -> dict[str, FolderFile]:
    """The folder's files by their paths. Raises TaskInvalid, which names the key.

    network, checks_network: the environment's options.
    """
    _refuse(row)
    files = {
        "instruction.md": FolderFile.of(_prompt(task)),
        "task.toml": FolderFile.of(_toml(row, network, checks_network)),
        "environment/Dockerfile": FolderFile.of(_dockerfile(row)),
        f"tests/{_SCRIPT}": FolderFile.of(_script(row), 0o755),
    }
    for path, file in _of_set("", row, folder):
        files[f"environment/{_FILES}/{path}"] = file
    for path, file in _of_set("tests.", row.tests, folder):
        if path == _SCRIPT:
            raise TaskInvalid(
                "tests", f"has {_SCRIPT}, which is reserved for the script that runs the checks"
            )
        files[f"tests/{path}"] = file
    if row.solution:
        solution = f"#!/bin/sh\ncd {shlex.quote(_workdir(row))}\n{row.solution}\n"
        files["solution/solve.sh"] = FolderFile.of(solution, 0o755)
    return files


def _refuse(row: WorkspaceRow) -> None:
    """Raises TaskInvalid for what a folder cannot say."""
    if not row.image:
        raise TaskInvalid(
            "image", "is missing. A task folder needs the image that its sandbox starts from"
        )
    if row.verify_in == "snapshot":
        raise TaskInvalid("verify_in", "is 'snapshot', which a task folder cannot express")
    if row.tests.path != _TESTS:
        raise TaskInvalid("tests.path", f"must be {_TESTS} in a task folder")
    if row.tests.user:
        raise TaskInvalid("tests.user", "cannot be expressed in a task folder")
    for index, check in enumerate(row.checks):
        for key, said in (("reward_file", check.reward_file), ("user", check.user)):
            if said:
                raise TaskInvalid(f"checks[{index}].{key}", "cannot be expressed in a task folder")
        if check.name == "reward":
            raise TaskInvalid(
                f"checks[{index}].name",
                "is 'reward', but this name is reserved for the reward of the whole task",
            )


def _prompt(task: Task) -> str:
    params = task.message.params
    if params.HasField("input_text"):
        return f"{params.input_text}\n"
    texts: list[str] = []
    for number, item in enumerate(params.input):
        if not item.HasField("message") or not (text := text_of(item)):
            raise TaskInvalid(
                f"input[{number}]", "is not text. A task folder has one instruction, which is text"
            )
        texts.append(text)
    if not texts:
        raise TaskInvalid("input", "is missing. A task folder needs an instruction")
    return "\n\n".join(texts) + "\n"


def _toml(row: WorkspaceRow, network: object, checks_network: object) -> str:
    lines = ['schema_version = "1.4"']
    apart = row.verify_in == "fresh"
    if apart:
        lines.append(f"artifacts = [{_quoted(_workdir(row))}]")
    lines += ["", "[environment]", f"workdir = {_quoted(_workdir(row))}"]
    lines += _network_lines("network", network)
    limits = row.limits
    for key, amount in (
        ("cpus", limits.cpus), ("memory_mb", limits.memory_mb), ("storage_mb", limits.disk_mb)
    ):  # fmt: skip
        if amount:
            lines.append(f"{key} = {amount:g}")
    lines += _table("environment.env", row.env)
    seconds = math.ceil(sum(check.timeout_s + 2 for check in row.checks)) + 10
    lines += ["", "[verifier]", f"timeout_sec = {seconds}"]
    if apart:
        lines.append('environment_mode = "separate"')
        lines += _network_lines("checks_network", checks_network)
    return "\n".join(lines) + "\n"


def _network_lines(option: Literal["network", "checks_network"], reach: object) -> list[str]:
    """A model's endpoint is no network of the task's: Harbor adds the one of its agent."""
    if reach in ("agent", "none"):
        return ['network_mode = "no-network"']
    if reach == "open":
        return ['network_mode = "public"']
    if isinstance(reach, list) and all(isinstance(host, str) and ":" not in host for host in reach):
        hosts = ", ".join(map(_quoted, reach))
        return ['network_mode = "allowlist"', f"allowed_hosts = [{hosts}]"]
    raise TaskInvalid(
        "image", f"the option {option} of the environment cannot be expressed in a task folder"
    )


def _table(name: str, values: dict[str, str]) -> list[str]:
    if not values:
        return []
    return ["", f"[{name}]", *(f"{_quoted(key)} = {_quoted(one)}" for key, one in values.items())]


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes JSON has, too."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def _dockerfile(row: WorkspaceRow) -> str:
    image = f"{row.image}@{row.image_digest}" if row.image_digest else row.image
    workdir = shlex.quote(_workdir(row))
    lines = [f"FROM {image}"]
    if row.user:
        owner = shlex.quote(row.user)
        lines += ["USER root", _run(f"mkdir -p {workdir} && chown {owner} {workdir}")]
    lines.append(f"WORKDIR {json.dumps(_workdir(row))}")
    if row:
        chown = f"--chown={row.user} " if row.user else ""
        lines.append(f"COPY {chown}{_FILES}/ ./")
    if row.user:
        lines.append(f"USER {row.user}")
    lines += map(_run, row.setup)
    return "\n".join(lines) + "\n"


def _run(line: str) -> str:
    return f"RUN {json.dumps(['/bin/sh', '-c', line])}"


def _script(row: WorkspaceRow) -> str:
    whole = math.fsum(check.weight for check in row.checks)
    lines = [_CHECKS_HEAD, f"cd {shlex.quote(_workdir(row))} || exit 1\n"]
    for name, check in row.named_checks().items():
        lines += _check_lines(name, check, check.weight / whole)
    return "".join((*lines, _CHECKS_END))


def _check_lines(name: str, check: WorkspaceCheck, weight: float) -> Iterator[str]:
    wanted, stdin = shlex.quote(check.prints), "''"
    if _SECRET in check.prints:
        yield "new_secret\n"
        wanted = '"$secret"'.join(shlex.quote(part) for part in check.prints.split(_SECRET))
        stdin = '"$secret$newline"'
    codes = shlex.quote(" ".join(map(str, check.exit_codes)))
    yield (
        f"check {shlex.quote(json.dumps(name))} {weight!r} {check.timeout_s:g} {codes}"
        f" {wanted} {stdin} \\\n  {shlex.quote(check.run)}\n"
    )


def _of_set(key: str, files: FileSet, folder: TaskFolder) -> Iterator[tuple[str, FolderFile]]:
    """The files of a row's set by their paths, later ones over earlier ones."""
    folder.check(key, files)
    if files.archive:
        yield from _unpacked(f"{key}archive", folder.find(key, files.archive).read_bytes())
    if files.folder:
        root = folder.find(f"{key}folder", files.folder)
        for path in sorted(root.rglob("*")):
            if path.is_symlink():
                raise TaskInvalid(
                    f"{key}folder",
                    f"has the link {path.name}. Only files and folders can be written",
                )
            if path.is_file():
                mode = path.stat().st_mode & 0o777
                yield path.relative_to(root).as_posix(), FolderFile(path.read_bytes(), mode)
    if files.files:
        yield from _unpacked(f"{key}files", packed_inline(files))


def _unpacked(key: str, archive: bytes) -> Iterator[tuple[str, FolderFile]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        for member in found:
            if member.isdir():
                continue
            content = found.extractfile(member) if member.isreg() else None
            path = PurePosixPath(member.name)
            if content is None or path.is_absolute() or ".." in path.parts:
                raise TaskInvalid(
                    key, f"has {member.name!r}. A task folder can have only plain files"
                )
            yield str(path), FolderFile(content.read(), member.mode & 0o777)


def _workdir(row: WorkspaceRow) -> str:
    return row.workdir or _WORKDIR

"""A task's own solution as calls of the tool `shell`. Pure, but for the files that it reads."""

from __future__ import annotations

import base64
import gzip
import io
import shlex
import tarfile
from collections.abc import Mapping
from typing import Any, Final

from gymmesh_resource.environments.harbor.shell_state import typed
from gymmesh_resource.environments.harbor.task import TaskStep
from gymmesh_sandbox_access.files import packed

FOLDER: Final = "/solution"
_KEPT: Final = "/tmp/solution.tar.gz.base64"  # in the sandbox
# Linux takes no argument over 128 KiB.
_PIECE: Final = 96 << 10


def solution_calls(step: TaskStep, env: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    """The calls that write the step's solution to the sandbox and run it; empty without one."""
    if step.solution is None:
        return []
    text = base64.b64encode(_archive(step)).decode()
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    lines = [f"printf %s {piece} >>{_KEPT}" for piece in pieces]
    script = f"{FOLDER}/{step.solution.name}"
    variables = {"DEBIAN_FRONTEND": "noninteractive", **env}
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    run = f"env {given} {_by_bash(script)}"
    if step.tests.same_shell and step.solution_text:
        run = typed(script)
    last = (
        f"mkdir -p {FOLDER} && base64 -d <{_KEPT} | tar -xz -C {FOLDER} && rm {_KEPT}"
        f" && chmod +x {script} && {run}"
    )
    lines[-1] += f" && {last}"
    return [("shell", {"command": line}) for line in lines]


def _by_bash(script: str) -> str:
    """Runs a script as Harbor's shell does: by its first line, and without one by bash."""
    return f"/bin/sh -c 'command -v bash >/dev/null && exec bash -c {script}; exec {script}'"


def _archive(step: TaskStep) -> bytes:
    if step.solution_folder is not None:
        return packed(step.solution_folder.path, step.solution_folder.without)
    assert step.solution is not None
    if step.solution_text:
        return _packed_text(step.solution.name, step.solution_text)
    return packed(step.solution)


def _packed_text(name: str, text: str) -> bytes:
    """An archive of one script; the same text gives the same bytes."""
    content, buffer = text.encode(), io.BytesIO()
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o755
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)

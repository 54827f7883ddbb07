"""Processes of a sandbox that outlive the program that started them: found, ended and counted.

Works in any sandbox with /bin/sh, /proc and the usual small programs; no `ps` is needed. Never
touched: the first process, and what runs the look itself. In a sandbox that shares its processes
with its machine (a backend without isolation), only processes that carry the mark are seen.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access.handle import SandboxHandle

#: A variable that marks a program and all that descends from it, unless that removes it.
MARK: Final = "GYMMESH_PROGRAM"
_LOOK_S: Final = 30.0
_NAME: Final = 60  # characters of a name that are shown
# The kernel's own number of the first space of process ids, PROC_PID_INIT_INO.
_MACHINES: Final = "pid:[4026531836]"

# `others` writes a line for each process that lives, may be touched, and is outside of this
# shell's own tree: number and name. In /proc/PID/stat, field 3 is the state and 4 the parent; the
# name before them may hold anything.
_FUNCTIONS: Final = r"""
space=$(readlink /proc/self/ns/pid)
case $space in ''|"$MACHINES"|"$CALLERS") own_space=;; *) own_space=1;; esac
about() {
  line=; read -r line 2>/dev/null <"/proc/$1/stat" || [ -n "$line" ] || return 1
  rest=${line##*) }; state=${rest%% *}; rest=${rest#* }; parent=${rest%% *}
}
top_of() {
  top=$1
  while about "$top"; do
    case $parent in 0|1|*[!0-9]*) return;; esac
    top=$parent
  done
}
marked() {
  [ -n "$MARKED" ] || return 1
  tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" | while read -r variable; do
    [ "$variable" = "$MARKED" ] && echo yes && break
  done | read -r found
}
top_of $$; own=$top
others() {
  for folder in /proc/[0-9]*; do
    number=${folder#/proc/}
    [ "$number" = 1 ] && continue
    about "$number" || continue
    case $state in Z|X) continue;; esac
    [ -n "$own_space" ] || marked "$number" || continue
    top_of "$number"
    [ "$top" = "$own" ] && continue
    name=; read -r name 2>/dev/null <"/proc/$number/comm"
    echo "$number $name"
  done
}
"""
_LIST: Final = _FUNCTIONS + "others\n"
_END: Final = (
    _FUNCTIONS
    + r"""
for round in 1 2 3 4 5; do
  found=$(others | while read -r number name; do
    case " $KEPT " in *" $number "*) continue;; esac
    kill -9 "$number" 2>/dev/null && echo "$number $name"
  done)
  [ -n "$found" ] || break
  echo "$found"
done
"""
)


@dataclass(frozen=True, slots=True)
class LeftProcess:
    """A process that was found: its number in the sandbox, and its name."""

    number: int
    name: str


async def running(sandbox: SandboxHandle, *, mark: str = "", user: str = "") -> list[LeftProcess]:
    """The processes that run now. Raises MeshError."""
    return await _looked(sandbox, _LIST, mark, user, ())


async def end_others(
    sandbox: SandboxHandle, kept: Collection[int], *, mark: str = "", user: str = ""
) -> list[LeftProcess]:
    """Kills what runs now, except the processes with these numbers; says what was killed.

    mark: the value of MARK that the program was started with. user: who does it; one without the
    right to end a process leaves it. Raises MeshError.
    """
    return await _looked(sandbox, _END, mark, user, kept)


async def _looked(
    sandbox: SandboxHandle, script: str, mark: str, user: str, kept: Collection[int]
) -> list[LeftProcess]:
    result = await sandbox.exec(
        ["/bin/sh", "-c", script],
        env={
            "KEPT": " ".join(map(str, kept)),
            "MARKED": f"{MARK}={mark}" if mark else "",
            "MACHINES": _MACHINES,
            "CALLERS": os.readlink("/proc/self/ns/pid") if os.path.exists("/proc/self/ns") else "",
        },
        user=user,
        cwd="/",
        timeout_s=_LOOK_S,
    )
    if not result.ok:
        raise MeshError(
            errors_pb2.ERROR_REASON_SANDBOX_LOST,
            "the processes of the sandbox could not be listed: "
            f"{result.error_text.strip()[-200:] or f'exit code {result.exit_code}'}",
            metadata={"cause": "no /bin/sh or no /proc"},
        )
    found: dict[int, LeftProcess] = {}
    for line in result.text.splitlines():
        number, _, name = line.partition(" ")
        if number.isdecimal():
            found[int(number)] = LeftProcess(int(number), name[:_NAME])
    return list(found.values())

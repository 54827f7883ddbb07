"""Processes of a sandbox that outlive the program that started them: found, ended and counted.

Works in any sandbox with /bin/sh, /proc and the usual small programs; `ps` is not needed. The first
process and the processes of the search itself are never touched. In a sandbox that shares its
processes with its machine (a backend without isolation), only processes with the mark are seen.

A process may resist its end. So:

- A process is identified by its number and its start, because numbers are reused.
- A name is printed and never read as a command.
- A process whose first thread has ended counts as running while another thread runs.
- If processes are created faster than they are found, all are stopped at once before they are
  killed.
- The scripts start no other program while they end processes, because a sandbox may be full of
  processes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
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

# `each` calls a function for each process that lives, may be touched, and is outside of this
# shell's own tree. In /proc/PID/stat, field 3 is the state, 4 the parent and 22 the start, in ticks
# of the clock; the name before them may hold anything, brackets and ends of lines included. A
# process in the state Z whose folder `task` has several entries has threads that run.
_FUNCTIONS: Final = r"""
about() {
  of=$1 text=
  while read -r line || [ -n "$line" ]; do text="$text $line"; done 2>/dev/null <"/proc/$of/stat"
  [ -n "$text" ] || return 1
  set -- ${text##*) }
  state=$1 parent=$2 start=${20}
}
threads() {
  set -- "/proc/$1/task/"*
  [ $# -gt 1 ]
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
  done | read -r found_mark
}
top_of $$; own=$top
each() {
  for folder in /proc/[0-9]*; do
    number=${folder#/proc/}
    [ "$number" = 1 ] && continue
    about "$number" || continue
    began=$start
    case $state in Z|X) threads "$number" || continue;; esac
    [ -n "$OWN_SPACE" ] || marked "$number" || continue
    top_of "$number"
    [ "$top" = "$own" ] && continue
    name=; read -r name 2>/dev/null <"/proc/$number/comm"
    "$1"
  done
}
show() { printf '%s %s %s\n' "$number" "$began" "$name"; }
"""
_LIST: Final = _FUNCTIONS + "each show\n"
_SPACE: Final = "readlink /proc/self/ns/pid || :\n"
_END: Final = (
    _FUNCTIONS
    + r"""
ended=
finish() {
  # One that was killed does nothing more, also while it is still listed.
  case " $KEPT $ended " in *" $number:$began "*) return;; esac
  kill -9 "$number" 2>/dev/null || return
  ended="$ended $number:$began"
  found=yes
  show
}
for round in 1 2 3 4 5 6; do
  found=
  # Else a look may find none of those that end as soon as they have a child.
  [ -z "$OWN_SPACE" ] || kill -STOP -1 2>/dev/null
  each finish
  [ -z "$OWN_SPACE" ] || kill -CONT -1 2>/dev/null
  [ -n "$found" ] || exit 0
done
echo 'processes start faster than they can be ended' >&2
exit 1
"""
)


@dataclass(frozen=True, slots=True)
class LeftProcess:
    """A process that was found: its number in the sandbox, its start in ticks of the sandbox's
    clock, and its name. The name does not identify the process: a program that was just started
    has its parent's name for a moment.
    """

    number: int
    began: int
    name: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class SeenProcesses:
    """The processes of a sandbox at one time.

    own_space: whether the sandbox has its own process ids; otherwise only marked processes are
    seen.
    """

    processes: tuple[LeftProcess, ...] = ()
    own_space: bool = False


async def running(sandbox: SandboxHandle, *, mark: str = "", user: str = "") -> SeenProcesses:
    """The processes that run now. Raises MeshError."""
    space = (await _run(sandbox, _SPACE, {}, user)).strip()
    callers = os.readlink("/proc/self/ns/pid") if os.path.exists("/proc/self/ns") else ""
    own_space = space not in ("", _MACHINES, callers)
    output = await _run(sandbox, _LIST, _variables(mark, own_space=own_space), user)
    return SeenProcesses(_found(output), own_space)


async def end_others(
    sandbox: SandboxHandle, kept: SeenProcesses, *, mark: str = "", user: str = ""
) -> tuple[LeftProcess, ...]:
    """Kills all running processes except those seen before, and returns what was killed.

    mark: the value of MARK with which the program was started. user: the user that kills; it leaves
    processes that it has no right to end. Raises MeshError; SANDBOX_LOST if some processes could
    not be ended.
    """
    known = " ".join(f"{one.number}:{one.began}" for one in kept.processes)
    variables = {**_variables(mark, own_space=kept.own_space), "KEPT": known}
    return _found(await _run(sandbox, _END, variables, user))


def _variables(mark: str, *, own_space: bool) -> dict[str, str]:
    return {"MARKED": f"{MARK}={mark}" if mark else "", "OWN_SPACE": "yes" if own_space else ""}


async def _run(sandbox: SandboxHandle, script: str, variables: dict[str, str], user: str) -> str:
    result = await sandbox.exec(
        ["/bin/sh", "-c", script], env=variables, user=user, cwd="/", timeout_s=_LOOK_S
    )
    if not result.ok:
        said = result.error_text.strip()[-200:] or f"exit code {result.exit_code}"
        raise MeshError(
            errors_pb2.ERROR_REASON_SANDBOX_LOST,
            f"The processes of the sandbox could not be listed and ended: {said}.",
            metadata={
                "cause": "a process could not be ended, or the sandbox has no /bin/sh or no /proc"
            },
        )
    return result.text


def _found(output: str) -> tuple[LeftProcess, ...]:
    found: dict[int, LeftProcess] = {}
    for line in output.split("\n"):
        number, _, rest = line.partition(" ")
        began, _, name = rest.partition(" ")
        if number.isdecimal() and began.isdecimal():
            found[int(number)] = LeftProcess(int(number), int(began), name[:_NAME])
    return tuple(found.values())

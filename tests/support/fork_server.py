"""Starts gym-cli as forks of one process that has imported it: python fork_server.py FD.

What a start of gym-cli costs is nearly all imports, and the tests start hundreds. Here they are
done once. Nothing else is: no thread runs and gRPC has not begun, as both forbid a fork. A fork
takes the arguments, folder, environment and descriptors of its request, and then runs gym-cli's own
`__main__` to the interpreter's end, so that signals, exit codes and output are a fresh process's.

FD is a socket. Each byte on it brings descriptors: the new process's stdin, stdout and stderr, and
a socket on which a line of JSON says the rest. There the answer is a line with the process's id
and, when it has ended, one with its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

# What a mesh inside a command imports when it is used.
_LATER: Final = (
    "encodings.idna",
    "gymmesh_agent.service",
    "gymmesh_agent.tool_loop",
    "gymmesh_mesh.authoring.environments",
    "gymmesh_mesh.connecting",
    "gymmesh_mesh.processes",
    "gymmesh_model.backends.chat",
    "gymmesh_model.backends.local",
    "gymmesh_model.service",
    "gymmesh_model.transport.client",
    "gymmesh_resource.environments.math.calculator",
    "gymmesh_resource.environments.math.environment",
    "gymmesh_resource.environments.math.verdict",
    "gymmesh_resource.service",
    "uvloop",
)


def preload() -> None:
    """Imports the commands and what they import later. Raises RuntimeError where threads run."""
    import gymmesh_cli

    every = pkgutil.walk_packages(gymmesh_cli.__path__, "gymmesh_cli.")
    for name in (*(found.name for found in every), *_LATER):
        if not name.endswith(".__main__"):
            importlib.import_module(name)
    # At its end each fork would look at all of it, and copy every page for that.
    gc.collect()
    gc.freeze()
    tasks = Path("/proc/self/task")
    if tasks.exists() and len(list(tasks.iterdir())) > 1:
        raise RuntimeError("importing gym-cli starts threads, so it cannot be forked")


def next_request(control: socket.socket) -> dict[str, Any] | None:
    """Forks at each request; returns it in the new process, and None in this one at the end."""
    waiting: set[int] = set()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        waiting -= {pid for pid in waiting if os.waitpid(pid, os.WNOHANG)[0]}
        if not data:
            return None
        if (pid := os.fork()) == 0:
            control.close()
            return fork_and_wait(descriptors)
        waiting.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)


def fork_and_wait(descriptors: list[int]) -> dict[str, Any]:
    """Forks the process that was asked for, returns there, and answers for it here."""
    *stdio, own = descriptors
    with socket.socket(fileno=own) as answers, answers.makefile("rb") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
        if pid := os.fork():
            for descriptor in stdio:
                os.close(descriptor)
            _, status = os.waitpid(pid, 0)
            answers.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        os.setsid()
        for number, descriptor in enumerate(stdio):
            os.dup2(descriptor, number)
            os.close(descriptor)
        answers.sendall(b"%d\n" % os.getpid())
    return request


def generators() -> list[random.Random]:
    """Those of all modules, which draw the same in all forks unless they are seeded anew."""
    values = (value for module in list(sys.modules.values()) for value in vars(module).values())
    return [value for value in values if isinstance(value, random.Random)]


def become(request: dict[str, Any], loaded: Sequence[random.Random]) -> None:
    """Makes what a process is given at its start the request's."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = os.getcwd()
    sys.argv[1:] = request["arguments"]
    for generator in loaded:
        generator.seed()


if __name__ == "__main__":
    preload()
    found = generators()
    asked = next_request(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        become(asked, found)
        runpy.run_module("gymmesh_cli", run_name="__main__", alter_sys=True)

"""Runs a candidate's program test by test, in the sandbox. Imports only what is sent along with it.

The driver is on the candidate's side: the candidate may take it over. So the driver does not know
the expected output, and sends only what the candidate wrote or returned.

The order: `kind` is "stdio" or "call"; `prompt` is a text that the program continues, unless the
program defines `entry` itself; `source` is the program; `entry` names the function to call;
`prelude` asks for the usual imports; `any_exit`: `sys.exit(1)` is an end like any other. A test is
`{"stdin": text}`, `{"lines": text}` (arguments as JSON, one a line) or `{"args": [...], "kwargs":
{...}}` (encoded). Its answer is `{"stdout": text, "error": text, "exit": number}`, `{"value":
encoded}` or `{"error": text, "type": name}`.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import sys

TYPE_CHECKING = False  # importing typing takes longer than all of the rest
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

    from gymmesh_resource.environments.code import frames
    from gymmesh_resource.environments.code.extract import defines
else:
    sys.path.insert(0, __file__.rpartition("/")[0])
    import frames
    from extract import defines

    del sys.path[0]  # a program's imports do not look there

_STARRED = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools"
    " operator io sys json builtins typing"
)


def prelude() -> str:
    """The imports that solutions of contest tasks are written against."""
    names = _STARRED.split()
    lines = [f"from {name} import *" for name in names]
    lines += [f"import {name}" for name in names if name not in ("builtins", "typing")]
    return "\n".join(lines)


def parts_of(order: dict[str, Any]) -> list[str]:
    """The texts to run, in order, in one namespace."""
    prompt, source = order.get("prompt", ""), order["source"]
    if not prompt:
        return [source]
    return [prompt, source] if defines(source, order["entry"]) else [prompt + source]


def find(space: dict[str, Any], source: str, entry: str) -> Any:
    """The function of that name, or the method where the program has a class Solution."""
    if "class Solution" in source and "Solution" in space:
        return getattr(space["Solution"](), entry)
    return space[entry]


def _writer(descriptor: int, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(descriptor, "wb", closefd=False), encoding="utf-8", errors=errors)


def exit_code(leaving: SystemExit) -> int:
    """The exit code that Python gives to `sys.exit`; a text is written to standard error."""
    if leaving.code is None or isinstance(leaving.code, int):
        return int(leaving.code or 0) & 0xFF
    sys.stderr.write(str(leaving.code))
    return 1


def run_child(code: CodeType, space: dict[str, Any], descriptors: list[int], any_exit: bool) -> int:
    """In the child process: run the program. Returns the exit code."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    os.closerange(3, 256)
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")  # noqa: SIM115  # open to the end
    sys.stdout = _writer(1, "surrogateescape")
    sys.stderr = _writer(2, "backslashreplace")
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
        if name in space:  # from the prelude
            space[name] = getattr(sys, name)
    status = 0
    try:
        exec(code, space)  # noqa: S102  # this is the program's own process
    except SystemExit as leaving:
        status = 0 if any_exit else exit_code(leaving)
    except BaseException as error:
        sys.stderr.write(frames.said(error))
        status = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        status = status or 1
    return status


def _file(name: str) -> int:
    """An open file without a name; one in memory would not count as the program's memory."""
    path = f".{name}-{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return descriptor


def run_stdio(
    code: CodeType, space: dict[str, Any], test: dict[str, Any], any_exit: bool = False
) -> dict[str, Any]:
    """Run the program in a new process. Returns its output and exit code."""
    files = [_file(name) for name in ("stdin", "stdout", "stderr")]
    try:
        view = memoryview(test["stdin"].encode("utf-8", "surrogatepass"))
        while view:
            view = view[os.write(files[0], view) :]
        os.lseek(files[0], 0, os.SEEK_SET)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = run_child(code, space, files, any_exit)
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        stdout = os.pread(files[1], frames.OUTPUT_LIMIT + 1, 0)
        if len(stdout) > frames.OUTPUT_LIMIT:
            return {"stdout": "", "error": "too much output", "exit": 1}
        return {
            "stdout": stdout.decode("utf-8", "backslashreplace"),
            "error": os.pread(files[2], frames.ERROR_LIMIT, 0).decode("utf-8", "backslashreplace"),
            "exit": os.waitstatus_to_exitcode(status),
        }
    finally:
        for descriptor in files:
            os.close(descriptor)


def run_call(function: Any, test: dict[str, Any]) -> dict[str, Any]:
    """Call the function. Returns its value or its error."""
    named = {}
    if "lines" in test:
        given = [json.loads(line) for line in test["lines"].split("\n")]
    else:
        given = [frames.decode(part) for part in test["args"]]
        named = {name: frames.decode(part) for name, part in test["kwargs"].items()}
    try:
        return {"value": frames.encode(function(*given, **named))}
    except BaseException as error:
        return {"error": frames.said(error), "type": type(error).__name__}


def main() -> None:
    """Run the program of the order, then each test."""
    channel = frames.open_channel()
    order = channel.order()
    sys.setrecursionlimit(50_000)
    sys.set_int_max_str_digits(50_000)
    # What the module site would give; without it the interpreter starts sooner.
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    space = {"__name__": "__main__", "__builtins__": builtins}
    if order["prelude"]:
        exec(prelude(), space)  # noqa: S102  # our own text
        space["exit"] = space["quit"] = sys.exit
    calls = order["kind"] == "call"
    if calls:
        # What is imported anyway is no answer: the program has to define the function.
        space.pop(order["entry"], None)
    try:
        codes = [compile(text, "<program>", "exec", dont_inherit=True) for text in parts_of(order)]
        for code in codes if calls else codes[:-1]:
            exec(code, space)  # noqa: S102  # a sandbox is made for this
        function = find(space, order["source"], order["entry"]) if calls else None
    except BaseException as error:
        channel.write(frames.UNUSABLE, frames.as_bytes(frames.said(error)))
        return
    channel.write(frames.READY)
    while (given := channel.read()) is not None:
        test = json.loads(given[1])
        answer = (
            run_call(function, test)
            if calls
            else run_stdio(codes[-1], space, test, order["any_exit"])
        )
        try:
            text = json.dumps(answer).encode()
        except (ValueError, RecursionError, MemoryError) as error:
            text = json.dumps({"error": frames.said(error), "type": type(error).__name__}).encode()
        channel.write(frames.ANSWER, text)


if __name__ == "__main__":
    main()

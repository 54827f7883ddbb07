"""Runs a Python function or a LangGraph graph: `python3 run_function.py MODULE:NAME`, or FILE:NAME.

This file is copied into a sandbox that has no gymmesh, so it uses only the standard library.
Standard input is a JSON object: prompt, url, key, model, workdir. A function receives those values
for which it has parameters. A graph is invoked with the prompt as its first message.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Awaitable
from types import ModuleType
from typing import Any

_NOT_FOUND = 127


def main() -> None:
    """Run what the command line names."""
    given = json.load(sys.stdin)
    place, _, name = sys.argv[1].rpartition(":")
    sys.path.insert(0, os.getcwd())
    found = vars(load(place))
    if name not in found:
        # As a shell reports a program that does not exist: no further attempt finds it.
        sys.stderr.write(f"{place} has no function {name}\n")
        sys.exit(_NOT_FOUND)
    result = call(found[name], given)
    if inspect.isawaitable(result):
        result = asyncio.run(wait_for(result))
    if isinstance(result, str):
        sys.stdout.write(f"{result}\n")


def load(place: str) -> ModuleType:
    """A module by its name, or by its file. As for a script, the file may import modules from
    its folder.
    """
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = os.path.abspath(place)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path)[: -len(".py")]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses look their module up by name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def call(target: Any, given: dict[str, str]) -> Any:
    """The result of the function or graph, which may be awaitable."""
    if not callable(target):
        return target.ainvoke({"messages": [{"role": "user", "content": given["prompt"]}]})
    parameters = inspect.signature(target).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return target(**{key: value for key, value in given.items() if takes_all or key in parameters})


async def wait_for(awaitable: Awaitable[Any]) -> Any:
    """The result of an awaitable."""
    return await awaitable


if __name__ == "__main__":
    main()

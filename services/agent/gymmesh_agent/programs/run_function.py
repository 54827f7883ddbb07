"""Runs a Python function or a LangGraph graph: `python3 run_function.py MODULE:NAME`, or FILE:NAME.

Is copied into a sandbox that has nothing of gymmesh, so it uses the standard library alone.
Standard input is a JSON object: prompt, url, key, model, workdir. A function gets those of them
that it has parameters for. A graph is invoked with the prompt as its first message.
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


def main() -> None:
    """Run what the command line names."""
    given = json.load(sys.stdin)
    place, _, name = sys.argv[1].rpartition(":")
    sys.path.insert(0, os.getcwd())
    target = vars(load(place))[name]
    result = call(target, given)
    if inspect.isawaitable(result):
        result = asyncio.run(wait_for(result))
    if isinstance(result, str):
        sys.stdout.write(f"{result}\n")


def load(place: str) -> ModuleType:
    """A module by its name, or that of a file, which imports what is beside it as a script does."""
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
    """What the function or graph returns; may have to be awaited."""
    if not callable(target):
        return target.ainvoke({"messages": [{"role": "user", "content": given["prompt"]}]})
    parameters = inspect.signature(target).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return target(**{key: value for key, value in given.items() if takes_all or key in parameters})


async def wait_for(awaitable: Awaitable[Any]) -> Any:
    """What an awaitable gives."""
    return await awaitable


if __name__ == "__main__":
    main()

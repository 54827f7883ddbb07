"""Runs a Python function or a LangGraph graph: `python3 run_function.py MODULE:NAME`.

Is copied into a sandbox that has nothing of gymmesh, so it uses the standard library alone.
Standard input is a JSON object: prompt, url, key, model, workdir. A function gets those of them
that it has parameters for. A graph is invoked with the prompt as its first message.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
from collections.abc import Awaitable
from typing import Any


def main() -> None:
    """Run what the command line names."""
    given = json.load(sys.stdin)
    module, _, name = sys.argv[1].partition(":")
    sys.path.insert(0, os.getcwd())
    target = vars(importlib.import_module(module))[name]
    result = call(target, given)
    if inspect.isawaitable(result):
        result = asyncio.run(wait_for(result))
    if isinstance(result, str):
        sys.stdout.write(f"{result}\n")


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

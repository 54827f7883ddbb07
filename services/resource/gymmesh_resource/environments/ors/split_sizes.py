"""How many tasks a server has, asked once when an environment's examples are listed."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

_LOGGER = logging.getLogger("gymmesh.resource.ors")
_ASK_S: Final = 5.0
_MOST_BYTES: Final = 65_536
_MOST_TASKS: Final = 100_000
_SHOWN_BYTES: Final = 200


def split_size(url: str, environment: str, split: str, headers: Mapping[str, str]) -> int:
    """The number of tasks in a split, at most 100,000; 0, with a warning, where it is unknown.

    Takes a few seconds at most. It blocks: examples are listed before there is an event loop.
    """
    try:
        if not environment:
            environment = str(_asked(f"{url}/list_environments", None, headers)[0])
        answer = _asked(f"{url}/{environment}/num_tasks", {"split": split}, headers)
        number = answer["num_tasks"]
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"num_tasks is {str(number)[:50]!r}")
    except (OSError, ValueError, LookupError, TypeError) as error:
        _LOGGER.warning("the ORS server at %s did not list the tasks of the split %r: %s",
                        url, split, _problem(error))  # fmt: skip
        return 0
    return min(number, _MOST_TASKS)


def _problem(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        with error:
            body = error.read(_SHOWN_BYTES).decode(errors="replace")
        said = f" and says {body!r}" if body else ""
        return (
            f"the server answered {error.code}{said}. Check the options 'headers', "
            "'key_variable', 'environment' and 'split'"
        )
    return (
        f"{type(error).__name__}: {error}"[:_SHOWN_BYTES]
        + ". Start the server first, set the option 'tasks', or pass a task file"
    )


def _asked(url: str, body: Any, headers: Mapping[str, str]) -> Any:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={**headers, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_ASK_S) as response:
        return json.loads(response.read(_MOST_BYTES))

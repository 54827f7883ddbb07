"""The server's address and what a task's row says of an episode. Pure."""

from __future__ import annotations

from typing import Any, Final

from gymmesh_resource.environments._remote_http import root_url
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.task import Task

_KEY: Final = "openenv"
_KEYS: Final = frozenset(("seed", "episode_id", "reset"))
# Characters of an episode's id, as the servers take it.
_LONGEST_ID: Final = 255
_HTTP: Final = {"ws": "http", "wss": "https"}


def server_root(url: str) -> str:
    """The server's root over HTTP, however the address is written. Raises ValueError."""
    return root_url(url, _HTTP).removesuffix("/ws")


def reset_data(task: Task) -> dict[str, Any]:
    """The data of the `reset` message. Raises TaskInvalid.

    `openenv.seed` wins over the row's `seed`; without either the server chooses.
    """
    own = task.payload.get(_KEY, {})
    if not isinstance(own, dict):
        raise TaskInvalid(_KEY, "must be an object with the keys 'seed', 'episode_id' or 'reset'")
    if unknown := sorted(own.keys() - _KEYS):
        raise TaskInvalid(
            f"{_KEY}.{unknown[0]}",
            "is unknown. Put arguments of the server's reset into the key 'reset'",
        )
    further = own.get("reset", {})
    if not isinstance(further, dict):
        raise TaskInvalid(
            f"{_KEY}.reset", "must be an object with the arguments of the server's reset"
        )
    data = dict(further)
    seed = own.get("seed", task.message.seed if task.message.HasField("seed") else None)
    if seed is not None:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise TaskInvalid(f"{_KEY}.seed", "must be a whole number of at least 0")
        data["seed"] = seed
    episode = own.get("episode_id")
    if episode is not None:
        if not isinstance(episode, str) or len(episode) > _LONGEST_ID:
            raise TaskInvalid(
                f"{_KEY}.episode_id", f"must be text of at most {_LONGEST_ID} characters"
            )
        data["episode_id"] = episode
    return data

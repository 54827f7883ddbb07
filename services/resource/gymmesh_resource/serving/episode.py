"""The episode of a session that the environment plays itself: once, while its caller waits.

Invariant: when `play` has ended, so has the episode's task, but for one that ignores its
cancellation for `_CANCEL_S` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.model_endpoint import ModelEndpoint
from gymmesh_resource.serving.request_repeats import session_not_found
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.text import os_reason

T = TypeVar("T")
_CANCEL_S: Final = 5.0
_CONNECT_S: Final = 5.0


class SessionEpisode:
    """The one episode of a session."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._task: asyncio.Task[Any] | None = None

    @property
    def idle(self) -> bool:
        """Whether none is being played."""
        return self._task is None or self._task.done()

    async def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `work` returns, which is cancelled with the caller.

        Raises SESSION_STATE when the episode was played before, SESSION_NOT_FOUND where the session
        is closed meanwhile, and what `work` raises.
        """
        if self._task is not None:
            raise MeshError(
                errors_pb2.ERROR_REASON_SESSION_STATE,
                "The environment has already played the episode of this session. Open another "
                "session.",
                metadata={"session_id": self._session_id, "state": "played"},
            )
        # A task of its own: CloseSession cancels it, and not the caller.
        task = self._task = asyncio.create_task(work())
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,), timeout=_CANCEL_S)
            if task.done() and not task.cancelled():
                task.exception()  # retrieved, as no caller is left to do it
            raise
        if task.cancelled():
            raise session_not_found(self._session_id)
        result: T = task.result()
        return result

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel an episode that is being played; returns its task, for the caller to wait for."""
        if self._task is None or self._task.done():
            return []
        self._task.cancel()
        return [self._task]


async def check_reached(endpoint: ModelEndpoint) -> None:
    """Raises FIELD_INVALID where nothing can be connected to at the endpoint's address."""
    field = "endpoint.base_url"
    try:
        parts = urlsplit(endpoint.base_url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if not host:
        raise field_invalid(
            field, f"is {endpoint.base_url!r}. Write the URL as http(s)://HOST:PORT/v1"
        )
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except OSError as error:  # TimeoutError too
        why = "timed out" if isinstance(error, TimeoutError) else os_reason(error)
        raise field_invalid(
            field, f"is unreachable from the machine of the environment: {host}:{port} ({why})"
        ) from None
    writer.close()


def without_key(error: MeshError, key: str) -> MeshError:
    """The error, or one that has `***` where it has the key."""
    shown = (error.message, *error.metadata.values())
    if not any(key in text for text in shown):
        return error
    masked = MeshError(
        error.reason,
        error.message.replace(key, "***"),
        metadata={name: text.replace(key, "***") for name, text in error.metadata.items()},
        retry_after_s=error.retry_after_s,
        code=error.code,
    )
    masked.usage = error.usage
    return masked

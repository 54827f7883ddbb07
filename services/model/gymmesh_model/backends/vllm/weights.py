"""Follows the version of the weights that vLLM servers report at `GET /weight_info`.

A server offers this only in development mode (`VLLM_SERVER_DEV_MODE=1`). Without it, the trainer
sets the version (SetWeightsVersion). vLLM's version is a text. A text that is not a number, such as
the initial `default`, counts as no version.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Final

from gymmesh_model.backends.endpoint import HttpEndpoint
from gymmesh_model.transport import TransportError
from gymmesh_responses import CodecError, loads

_PATH: Final = "/../weight_info"
_ASK_SECONDS: Final = 5.0
_MAX_VERSION: Final = 2**64 - 1


class NotOffered(Exception):
    """The server does not report the version of its weights."""


async def follow_weights(http: HttpEndpoint, poll_s: float, tell: Callable[[int], None]) -> None:
    """Asks every endpoint for its version every `poll_s` seconds, until an endpoint does not offer
    it.

    tell: is called with the version that all endpoints have reached, which is the lowest version.
    """
    urls = [endpoint.at(_PATH) for endpoint in http.pool.endpoints]
    with contextlib.suppress(NotOffered):
        while True:
            versions = await asyncio.gather(*(_ask(http, url) for url in urls))
            known = [version for version in versions if version is not None]
            if len(known) == len(urls):
                tell(min(known))
            await asyncio.sleep(poll_s)


async def _ask(http: HttpEndpoint, url: str) -> int | None:
    """The version; None if the endpoint can't report it now, or reports no number. Raises
    NotOffered.
    """
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            answer = await http.get(url)
    except (TransportError, TimeoutError):
        return None
    if answer.status in (403, 404, 405):
        raise NotOffered
    if answer.status != 200:
        return None
    try:
        said = loads(answer.body)
    except CodecError:
        return None
    return version_of(said.get("weight_version") if isinstance(said, Mapping) else None)


def version_of(value: object) -> int | None:
    """vLLM's version as a number; None if it is not a number."""
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal():
        return None
    # Longer than any number of 64 bits; int() would take its time.
    if len(value) > math.ceil(math.log10(_MAX_VERSION)):
        return None
    version = int(value)
    return version if version <= _MAX_VERSION else None

"""Reads the endpoints' metrics every few seconds, for routing and for the limit of calls.

Nothing depends on it: an endpoint whose metrics cannot be had counts as no busier than our own
calls make it, and its limit follows its answers alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gymmesh_model.config import AdaptConfig, ModelConfig
from gymmesh_model.routing.load import LoadReport, parse_load
from gymmesh_model.routing.pool import Pool, PoolEndpoint
from gymmesh_runtime.waits import cancel_and_wait

if TYPE_CHECKING:
    import aiohttp

_PATH: Final = "/../metrics"
_MAX_BYTES: Final = 4 * 1024 * 1024
_LONGEST_S: Final = 5.0
_log = logging.getLogger("gymmesh.model")


class LoadPoll:
    """One task per endpoint of a pool.

    config: says how often. headers: of each request. proxies: whether the environment's are used.
    """

    def __init__(
        self, pool: Pool, config: ModelConfig, headers: Mapping[str, str], *, proxies: bool
    ) -> None:
        self._pool = pool
        self._headers = headers
        self._poll_s = (config.adapt or AdaptConfig()).poll_s
        self._proxies = proxies
        self._session: aiohttp.ClientSession | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts reading; in a running event loop, once."""
        # Imported only where there is something to read.
        import aiohttp

        self._session = aiohttp.ClientSession(
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=min(self._poll_s, _LONGEST_S)),
            trust_env=self._proxies,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._tasks = [
            asyncio.ensure_future(self._follow(endpoint, self._session))
            for endpoint in self._pool.endpoints
        ]

    async def stop(self) -> None:
        """Stops reading; harmless when called twice or before `start`."""
        tasks, self._tasks = self._tasks, []
        session, self._session = self._session, None
        await cancel_and_wait(*tasks)
        if session is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_S):
                    await session.close()

    async def _follow(self, endpoint: PoolEndpoint, session: aiohttp.ClientSession) -> None:
        could = True
        while True:
            asked, in_flight = self._pool.clock(), endpoint.in_flight
            report = await _ask(endpoint.at(_PATH), session)
            self._pool.reported(endpoint, report, asked, in_flight)
            if (report is not None) != could:
                could = report is not None
                said = "can be read again" if could else "cannot be read"
                _log.info(
                    "model %s: the metrics of endpoint %d %s", self._pool.name, endpoint.index, said
                )
            await asyncio.sleep(self._poll_s)


def wants_metrics(config: ModelConfig) -> bool:
    """Whether the endpoints of a configured model are asked for their metrics."""
    wish = config.adapt.metrics if config.adapt else None
    # The only backend whose endpoints surely have some.
    return str(config.backend) == "vllm" if wish is None else wish


async def _ask(url: str, session: aiohttp.ClientSession) -> LoadReport | None:
    import aiohttp

    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                return None
            page = bytearray()
            async for piece in response.content.iter_any():
                page += piece
                if len(page) > _MAX_BYTES:
                    return None
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None
    return parse_load(bytes(page))

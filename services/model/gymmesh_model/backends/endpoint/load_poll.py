"""Reads an endpoint's metrics every few seconds, for routing and for the limit of calls.

Nothing depends on it: an endpoint whose metrics cannot be had counts as no busier than our own
calls make it, and its limit follows its answers alone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gymmesh_model.routing import LoadReport, Pool, PoolEndpoint, parse_load
from gymmesh_model.transport import Transport, TransportError

_PATH: Final = "/../metrics"
_MAX_BYTES: Final = 4 * 1024 * 1024
_LONGEST_S: Final = 5.0
_log = logging.getLogger("gymmesh.model")


async def follow_load(
    pool: Pool, endpoint: PoolEndpoint, transport: Transport, poll_s: float
) -> None:
    """Reads the endpoint's metrics every `poll_s` seconds, until it is cancelled."""
    could = True
    while True:
        asked, in_flight = pool.clock(), endpoint.in_flight
        report = await _ask(endpoint.at(_PATH), transport, min(poll_s, _LONGEST_S))
        pool.reported(endpoint, report, asked, in_flight)
        if (report is not None) != could:
            could = report is not None
            said = "can be read again" if could else "cannot be read"
            _log.info("model %s: the metrics of endpoint %d %s", pool.name, endpoint.index, said)
        await asyncio.sleep(poll_s)


async def _ask(url: str, transport: Transport, timeout: float) -> LoadReport | None:
    try:
        async with asyncio.timeout(timeout):
            answer = await transport.get(url)
    except (TransportError, TimeoutError, ValueError):
        return None
    fits = answer.status == 200 and len(answer.body) <= _MAX_BYTES
    return parse_load(answer.body) if fits else None

"""Bytes over TCP, in pieces, and what comes back until the other side hangs up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: How long a server may take to hang up after its caller has.
PATIENT_S: Final = 90.0
_MOST: Final = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Came:
    """What came back; `problem` is empty where the connection ended in time."""

    data: bytes
    problem: str = ""


async def exchanged(
    address: str, pieces: Sequence[bytes], *, end: bool = True, patient_s: float = PATIENT_S
) -> Came:
    """Sends the pieces, says that no more comes (`end`), and reads until the server hangs up."""
    host, _, port = address.rpartition(":")
    data = bytearray()
    try:
        async with asyncio.timeout(patient_s):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError) as error:
        return Came(b"", f"it cannot be connected to: {error!r}")
    try:
        async with asyncio.timeout(patient_s):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if end:
                writer.write_eof()
            while (more := await reader.read(65_536)) and len(data) < _MOST:
                data += more
    except TimeoutError:
        return Came(bytes(data), f"it was open {patient_s:.0f} s after its caller had hung up")
    except OSError:
        return Came(bytes(data))  # the server hung up first, with something unread
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return Came(bytes(data))

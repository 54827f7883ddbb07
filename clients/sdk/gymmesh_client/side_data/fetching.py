"""Copies side data from a model service into a folder, checked."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final, Protocol, cast

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh_client.side_data.reading import SideDataUnreadable
from gymmesh_responses import side_data_bytes, side_data_place
from gymmesh_runtime.errors import MeshError

_ELSEWHERE: Final = frozenset(
    (
        errors.ERROR_REASON_SIDE_DATA_NOT_FOUND,
        errors.ERROR_REASON_NOT_OFFERED,
        errors.ERROR_REASON_PEER_UNAVAILABLE,
        errors.ERROR_REASON_DRAINING,
        errors.ERROR_REASON_MUX_BROKEN,
    )
)


class SideDataPeer(Protocol):
    """The RPC of a model service that is called here; it raises MeshError."""

    def ReadSideData(
        self, request: model_pb2.ReadSideDataRequest, *, timeout: float
    ) -> AsyncIterator[model_pb2.ReadSideDataResponse]:
        """The numbers, in pieces."""


async def fetch_side_data(
    peers: Sequence[SideDataPeer],
    side: tokens_pb2.SideData,
    folder: Path,
    *,
    timeout_s: float = 300.0,
) -> Path:
    """Copy the numbers of a reference into a folder; returns the file. An existing file of the
    right size is kept.

    peers: the instances of the model service, asked in turn until one has the numbers. timeout_s:
        time limit for each instance, in seconds. Raises MeshError of the last instance if no
        instance has the numbers, and SideDataUnreadable if they differ from their digest.
    """
    target = folder / side_data_place(side.digest)
    if await asyncio.to_thread(_is_whole, target, side):
        return target
    await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
    missing: MeshError | None = None
    for peer in peers:
        try:
            await _copied(peer, side, target, timeout_s)
        except MeshError as error:
            if error.reason not in _ELSEWHERE:
                raise
            missing = error
        else:
            return target
    raise missing or SideDataUnreadable("no instance of the model service is known")


def _is_whole(target: Path, side: tokens_pb2.SideData) -> bool:
    with suppress(FileNotFoundError):
        return target.stat().st_size == side_data_bytes(side)
    return False


async def _copied(
    peer: SideDataPeer, side: tokens_pb2.SideData, target: Path, timeout_s: float
) -> None:
    request = model_pb2.ReadSideDataRequest(digest=side.digest)
    digest, left = hashlib.sha256(), side_data_bytes(side)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".fresh-")
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            frames = peer.ReadSideData(request, timeout=timeout_s)
            generator = cast("AsyncGenerator[model_pb2.ReadSideDataResponse, None]", frames)
            async with asyncio.timeout(timeout_s), aclosing(generator):
                async for frame in generator:
                    left -= len(frame.data)
                    if left < 0:
                        break
                    digest.update(frame.data)  # of a piece: less than a millisecond
                    await asyncio.to_thread(file.write, frame.data)
        if left or digest.digest() != side.digest:
            raise SideDataUnreadable(
                f"side data '{side.name}' from the model service does not match its digest "
                f"{side.digest.hex()}"
            )
        await asyncio.to_thread(os.replace, name, target)
    except TimeoutError:
        raise MeshError(
            errors.ERROR_REASON_DEADLINE_PASSED,
            f"side data '{side.name}' did not arrive within {timeout_s:g} s",
        ) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)

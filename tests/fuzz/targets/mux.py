"""The mux: streams of frames with calls in them that are good, spoilt, or against the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from tests.fuzz.calls import PATIENT_S, Call, answer_to
from tests.fuzz.frames import Talk, frames_of
from tests.fuzz.judge import Answer, problems_of, problems_of_status
from tests.fuzz.targets.base import values_of
from tests.fuzz.targets.rpc import Face, requests_of
from tests.fuzz.values import Values

EXCHANGE: Final = "gymmesh.mux.v1.MuxService/Exchange"
_LINGER_S: Final = 0.3


class MuxTarget:
    """A stream for each case, to one of the faces. `large`: whether chunks may be of a MiB."""

    def __init__(
        self, name: str, faces: Sequence[Face], channel: Any, *, large: bool = False
    ) -> None:
        self.name = name
        self._faces = faces
        self._channel_to = channel
        self._channels: dict[str, Any] = {}
        self._large = large
        self._one_large = asyncio.Semaphore(2)
        self.seen: dict[str, int] = {}

    async def open(self) -> None:
        self._channels = {face.address: self._channel_to(face.address) for face in self._faces}

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def after(self) -> list[str]:
        return []

    async def run(self, seed: int, case: int) -> list[str]:
        values = values_of(self.name, seed, case)
        face = values.one(self._faces)
        values = values_of(self.name, seed, case, face.words)
        values.one(self._faces)
        large = self._large and values.chance(0.02)
        batches = Talk(values, lambda drawn: _call_of(drawn, face), large=large).batches()
        call = Call(
            EXCHANGE, batches, face.metadata, PATIENT_S,
            client_streaming=True, server_streaming=True, linger_s=_LINGER_S,
        )  # fmt: skip
        if large:
            async with self._one_large:
                answer = await answer_to(self._channels[face.address], call)
        else:
            answer = await answer_to(self._channels[face.address], call)
        self._count(answer.code)
        return [*problems_of(answer), *self._inside(answer)]

    def _inside(self, answer: Answer) -> list[str]:
        """What is wrong with the ends of the calls."""
        problems = []
        for data in answer.messages:
            try:
                frames = frames_of(data)
            except DecodeError:
                problems.append("a batch that cannot be decoded")
                continue
            for frame in frames:
                if frame.WhichOneof("kind") != "end":
                    continue
                status = frame.end.status
                self._count(f"end {status.code}")
                if frame.end.HasField("status") and status.code:
                    problems += problems_of_status(status, f"call {frame.call} of the mux")
        return problems

    def _count(self, key: str) -> None:
        self.seen[key] = self.seen.get(key, 0) + 1


def _call_of(values: Values, face: Face) -> tuple[str, bytes]:
    spec = values.one(face.methods)
    return spec.full_name, requests_of(values, face.good, spec)[0]

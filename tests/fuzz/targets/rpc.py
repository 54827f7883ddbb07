"""Every RPC of a service: good requests spoilt, made-up ones, and bytes that are none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2

from gymmesh_runtime.contract import MethodSpec
from tests.fuzz import messages
from tests.fuzz.calls import PATIENT_S, Call, Metadata, answer_to
from tests.fuzz.good import Good
from tests.fuzz.judge import Answer, problems_of, problems_of_status
from tests.fuzz.targets.base import values_of
from tests.fuzz.values import Values, Words
from tests.fuzz.wire import BYTES, Field, hurt

#: Streams that last for as long as their caller wants.
_ENDLESS: Final = frozenset(
    ("WatchInstances", "StreamGroups", "Collect", "StreamAggregatedResources",
     "DeltaAggregatedResources", "Watch")
)  # fmt: skip
_LINGER_S: Final = 0.3
_HUGE: Final = (5 * 2**20, 64 * 2**20 - 100, 64 * 2**20 + 100, 130 * 2**20)
_MOST_ENTRIES: Final = 8 * 2**20  # bytes of them
_KEYS: Final = ("traceparent", "authorization", "gymmesh-affinity", "x-a", "grpc-previous-rpc")
_SHORT_S: Final = (0.0, 0.001, 0.02, 0.3)


@dataclass(frozen=True, slots=True)
class Face:
    """A service at an address. `own`: of our contract; `words`: what its callers know by field."""

    address: str
    methods: Sequence[MethodSpec]
    words: Words
    good: Good | None = None
    own: bool = True
    metadata: Metadata = ()


class RpcTarget:
    """Calls the methods of some faces. `huge`: the share of requests of many megabytes.

    `admitted`: whether callers are let in; if not, every call has to be refused.
    """

    def __init__(
        self,
        name: str,
        faces: Sequence[Face],
        channel: Any,
        *,
        huge: float = 0.0,
        admitted: bool = True,
    ) -> None:
        self.name = name
        self._faces = faces
        self._methods = [(face, method) for face in faces for method in face.methods]
        self._channel_to = channel
        self._channels: dict[str, Any] = {}
        self._huge = huge
        self._admitted = admitted
        self._one_huge = asyncio.Semaphore(1)
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
        face, spec = values.one(self._methods)
        values = values_of(self.name, seed, case, face.words)
        values.one(self._methods)
        call = self._call(values, face, spec)
        if sum(map(len, call.requests)) > 2**20:
            async with self._one_huge:
                answer = await answer_to(self._channels[face.address], call)
        else:
            answer = await answer_to(self._channels[face.address], call)
        key = f"{spec.name} {answer.code}"
        self.seen[key] = self.seen.get(key, 0) + 1
        if not self._admitted:
            return _refusal_of(answer)
        return [*problems_of(answer), *_within(answer, spec)]

    def allowed(self, spec: MethodSpec, requests: list[bytes]) -> list[bytes]:
        """What may be sent of that."""
        return requests

    def _call(self, values: Values, face: Face, spec: MethodSpec) -> Call:
        short = values.chance(0.03)
        return Call(
            method=spec.full_name if values.chance(0.99) else spec.full_name + values.one("x/. "),
            requests=self.allowed(spec, requests_of(values, face.good, spec, self._huge)),
            metadata=[*face.metadata, *_metadata(values)],
            timeout_s=values.one(_SHORT_S) if short else PATIENT_S,
            client_streaming=spec.client_streaming,
            server_streaming=spec.server_streaming,
            linger_s=_LINGER_S if spec.name in _ENDLESS else None,
            own=face.own,
        )


def requests_of(
    values: Values, good: Good | None, spec: MethodSpec, huge: float = 0.0
) -> list[bytes]:
    """The requests of one call, spoilt in one way or another, or not at all."""
    kind = spec.request_class
    if values.chance(huge):
        return [_huge(values, kind)]
    made = good.requests(values, kind) if good is not None else [kind()]
    if not spec.client_streaming:
        made = made[:1]
    share = values.random.random()
    if share < 0.08:
        return [values.random.randbytes(values.random.randrange(300))]
    if share < 0.3:
        made = [messages.made_up(values, kind, values.one((0.2, 0.5, 1.0))) for _ in made]
    elif share < 0.85:
        spoilt = values.random.randrange(len(made))
        made = [
            messages.changed(values, one) if place == spoilt else one
            for place, one in enumerate(made)
        ]
    packed = [one.SerializeToString() for one in made]
    if values.chance(0.35):
        spoilt = values.random.randrange(len(packed))
        packed[spoilt] = hurt(values, packed[spoilt])
    return packed


def _huge(values: Values, kind: type[Message]) -> bytes:
    """A request with one text or blob of many megabytes, or with ever so many entries."""
    number = values.one([field.number for field in kind.DESCRIPTOR.fields] or [1])
    size = values.one(_HUGE)
    if values.chance(0.5):
        empty = Field(number, BYTES, b"").encoded()
        return empty * (min(size, _MOST_ENTRIES) // len(empty))
    return Field(number, BYTES, b"a" * size).encoded()


def _metadata(values: Values) -> list[tuple[str, str | bytes]]:
    if values.chance(0.85):
        return []
    if values.chance(0.2):
        return [("x-bin", values.random.randbytes(values.one((0, 10, 3000))))]
    plain = "".join(char for char in values.text() if " " <= char <= "~")[: values.one((20, 4000))]
    return [(values.one(_KEYS), plain)]


def _within(answer: Answer, spec: MethodSpec) -> Iterator[str]:
    """What is wrong with failures that responses tell of."""
    for data in answer.messages:
        try:
            response = spec.response_class.FromString(data)
        except DecodeError:
            yield f"{answer.method}: a response that cannot be decoded"
            continue
        for status in _statuses(response):
            if status.code:
                yield from problems_of_status(status, answer.method)


def _statuses(message: Message) -> Iterator[Any]:
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else (value,):
            if isinstance(one, status_pb2.Status):
                yield one
            else:
                yield from _statuses(one)


def _refusal_of(answer: Answer) -> list[str]:
    """What is wrong with the answer to somebody who must not be let in."""
    if answer.code in ("UNAUTHENTICATED", "UNIMPLEMENTED", "CANCELLED", "DEADLINE_EXCEEDED"):
        return problems_of(answer)
    if answer.code == "RESOURCE_EXHAUSTED":  # by gRPC's library, before anything of ours
        return problems_of(answer)
    return [f"{answer.method}: a stranger was answered {answer.code}: {answer.details[:300]}"]


def counts(seen: Mapping[str, int]) -> str:
    """How often each method ended how, in one line."""
    return ", ".join(f"{key} {count}" for key, count in sorted(seen.items()))

"""What the suite calls over the mux of a server, which it is told nothing about but its address."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.protobuf import json_format

from gymmesh_conformance.cases import render
from gymmesh_conformance.errors import CallError
from gymmesh_conformance.mux.exchange import METHOD, Exchange
from gymmesh_conformance.mux.laws import MIB
from gymmesh_conformance.paths import AddressPath
from gymmesh_conformance.services import Rpc, full_name, rpc, with_unknown_field
from gymmesh_conformance.suites import SLOW_S, TargetError

_ASK_S: Final = 10.0
_OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    ("grpc.max_receive_message_length", 64 * MIB),
    ("grpc.max_send_message_length", 64 * MIB),
)
#: By kind of service: a call that changes nothing, and one with a field that is REQUIRED.
_SAFE: Final[Mapping[str, tuple[str, str]]] = {
    "model": ("model.GetModel", "model.CreateResponse"),
    "resource": ("resource.GetEnvironment", "resource.CreateSession"),
    "agent": ("agent.GetAgent", "agent.RunRollout"),
    "discovery": ("discovery.ListInstances", "discovery.Register"),
}
_LARGE: Final = 3 * MIB - 100


class MuxTarget:
    """A server at an address. The profile may hold `stream` and `pending`, each {call, request}:
    a call with a response stream, and one that does not end by itself. An async context manager.
    """

    def __init__(self, path: AddressPath, profile: Mapping[str, Any] | None = None) -> None:
        self._path = path
        self._profile = profile or {}
        self._channel = path.open_channel(_OPTIONS)

    async def __aenter__(self) -> MuxTarget:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def exchange(self) -> Exchange:
        """One more stream; to be closed."""
        return Exchange(self._channel, streams, self._path.shown)

    async def variables(self) -> dict[str, Any]:
        """What cases use. Raises TargetError when none of the contract's services is served, and
        when the mux is not offered.
        """
        kind, answer = await self._kind()
        await self._check_offer()
        unary, required = (rpc(name) for name in _SAFE[kind])
        large = with_unknown_field(unary.request_class(), _LARGE).SerializeToString()
        found: dict[str, Any] = {
            "slow_s": SLOW_S,
            **self._profile,
            "kind": kind,
            "answer": answer,
            "unary": {"method": _name(unary), "payload": ""},
            "required": _name(required),
            # A request of three pieces, of which the middle one can come any number of times.
            "large": {
                "first": _base64(large[:MIB]),
                "middle": _base64(large[MIB : 2 * MIB]),
                "last": _base64(large[2 * MIB :]),
            },
            "too_large_a_payload": _base64(b"x" * (MIB + 1)),
        }
        found["long_wait"] = found["slow_s"] > 60
        calls = {"stream": self._profile.get("stream"), "pending": self._profile.get("pending")}
        if kind == "discovery":
            watch = {"call": "discovery.WatchInstances", "request": {"service": "conformance.mux"}}
            calls = {name: given or watch for name, given in calls.items()}
        for name, given in calls.items():
            found[name] = _call(name, given) if given else None
        return found

    async def _check_offer(self) -> None:
        stream = self.exchange()
        try:
            # What is refused ends at once; what is offered, with the last word.
            await stream.finish(_ASK_S)
        finally:
            await stream.close()
        if stream.error is not None and stream.error.code is grpc.StatusCode.UNIMPLEMENTED:
            raise TargetError(
                f"{self._path.address} answers {METHOD.lstrip('/')} with UNIMPLEMENTED: it does "
                "not offer the mux, and need not"
            )

    async def _kind(self) -> tuple[str, bytes]:
        """The kind of service that answers, and its answer. Raises TargetError."""
        why: CallError | None = None
        for kind, (name, _) in _SAFE.items():
            method = rpc(name)
            try:
                answer = await self._path.unary(method, method.request_class(), _ASK_S)
            except CallError as error:
                why = error
            else:
                return kind, answer.SerializeToString(deterministic=True)
        names = ", ".join(full_name(kind) for kind in _SAFE)
        raise TargetError(f"{self._path.address} serves none of {names} as plain RPCs: {why}")


def streams(method: str) -> bool:
    """Whether a method of the contract, by its full name, has a response stream."""
    service, _, name = method.partition("/")
    for kind in _SAFE:
        if full_name(kind) == service:
            try:
                return rpc(f"{kind}.{name}").streams_down
            except LookupError:
                return False
    return False


def _call(name: str, given: Mapping[str, Any]) -> dict[str, str]:
    try:
        method = rpc(given["call"])
        data = render(given.get("request", {}), _no_variable)
        request = json_format.ParseDict(data, method.request_class())
    except (LookupError, TypeError, json_format.ParseError) as error:
        raise TargetError(
            f"the profile's `{name}` is a `call`, such as discovery.WatchInstances, and its "
            f"`request`: {error}"
        ) from None
    return {"method": _name(method), "payload": _base64(request.SerializeToString())}


def _no_variable(name: str) -> Any:
    raise LookupError(f"there is no variable '{name}' here")


def _name(method: Rpc) -> str:
    return method.path.removeprefix("/")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()

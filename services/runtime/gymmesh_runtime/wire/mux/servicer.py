"""MuxService: the server's end of the mux."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import grpc

from gymmesh_runtime.binding import Binding
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import Authorizer, IdentityLimiter, texts_of, without_token
from gymmesh_runtime.wire.aborting import EndStatus
from gymmesh_runtime.wire.mux.assembly import AssemblyBudget
from gymmesh_runtime.wire.mux.calls import IncomingCall
from gymmesh_runtime.wire.mux.exchange import Exchange
from gymmesh_runtime.wire.mux.frames import EXCHANGE, OFFERED, VERSION
from gymmesh_runtime.wire.mux.serving import Admit
from gymmesh_runtime.wire.mux.stream import GrpcStream
from gymmesh_runtime.wire.mux.table import TableLimits


class MuxServicer:
    """Serves the methods of all bindings of one server over Exchange streams."""

    def __init__(
        self,
        bindings: Iterable[Binding],
        limits: TableLimits | None = None,
        budget: AssemblyBudget | None = None,
        authorizer: Authorizer | None = None,
        limiter: IdentityLimiter | None = None,
    ) -> None:
        self._authorizer = authorizer
        self._limiter = limiter
        self._methods = {
            method.spec.full_name: method
            for binding in bindings
            for method in binding.methods.values()
        }
        self._limits = limits
        self._budget = budget or AssemblyBudget()
        self._exchanges: set[Exchange] = set()
        self._leaving = ""

    def handler(self) -> Any:
        """The gRPC handler to add to a server."""
        service, _, method = EXCHANGE.partition("/")
        # Batches are packed and read here: gRPC only carries the bytes.
        return grpc.method_handlers_generic_handler(
            service, {method: grpc.stream_stream_rpc_method_handler(self._exchange)}
        )

    def leave(self, reason: str) -> None:
        """Accepts no new calls on any stream. Each stream ends when its calls have ended."""
        self._leaving = reason
        for exchange in self._exchanges:
            exchange.leave(reason)

    async def _exchange(self, _requests: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            name, admit = self._admission(rpc)
            limiter = self._limiter
            with contextlib.nullcontext() if limiter is None else limiter.connected(name):
                exchange = await self._serve(rpc, admit)
            if not exchange.broken:
                return
            ending = EndStatus.of(exchange.error())
            del exchange
        except MeshError as error:
            ending = EndStatus.of(error)
        await ending.send(rpc)

    async def _serve(self, rpc: Any, admit: Admit | None) -> Exchange:
        """Serves the calls of a stream until it ends; returns its end here."""
        await rpc.send_initial_metadata(((OFFERED, VERSION),))
        peer = rpc.peer()
        exchange = Exchange(
            GrpcStream(rpc, peer, opener=False),
            opener=False,
            peer=peer,
            methods=self._methods,
            limits=self._limits,
            budget=self._budget,
            admit=admit,
        )
        self._exchanges.add(exchange)
        try:
            if self._leaving:
                exchange.leave(self._leaving)
            await exchange.run()
        finally:
            self._exchanges.discard(exchange)
        return exchange

    def _admission(self, rpc: Any) -> tuple[str, Admit | None]:
        """A stream's caller, and what lets its calls in. Raises MeshError for one not known."""
        authorizer = self._authorizer
        if authorizer is None:
            return "", None
        metadata = texts_of(rpc.invocation_metadata())
        stream = authorizer.admit(authorizer.caller(rpc, metadata), EXCHANGE)

        def admit(call: IncomingCall) -> None:
            caller = authorizer.caller_on(stream, call.metadata)
            call.identity = authorizer.admit(caller, call.method).name
            call.metadata = without_token(call.metadata)

        return stream.name, admit

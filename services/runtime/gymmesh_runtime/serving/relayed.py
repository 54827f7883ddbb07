"""Serves over a connection that this process dials: to a relay, for callers that cannot dial this
process.

If the connection breaks, it is dialled again after a growing pause, until the dialer is stopped.
Meanwhile the relay keeps the instance's address. Calls that were in flight continue here, so that a
retry with the same request_id gets their answer.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.relay.v1 import relay_pb2
from gymmesh_runtime.binding import Binding, not_offered
from gymmesh_runtime.contract import CONTRACT_VERSION, methods_of
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import CHECK_S, Credentials
from gymmesh_runtime.timers import cancel_and_wait, doubled_s, first_of
from gymmesh_runtime.wire import (
    KEEPALIVE_S,
    Exchange,
    IncomingCall,
    MuxConnection,
    PeerChannel,
    call_unary,
)

_log = logging.getLogger("gymmesh.relay")

#: The key of a call's metadata under which a relay says who the caller is.
RELAYED_IDENTITY: Final = "gymmesh-relayed-identity"

_OFFER: Final = methods_of("gymmesh.relay.v1.RelayService")["Offer"]
_OPEN_S: Final = 15.0
# Longer than the relay may wait for the lease of its predecessor.
_OFFER_S: Final = 40.0
# Answers are kept for as long.
_OUTLIVE_S: Final = 600.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
#: What the same offer meets again: at the start these end it.
_FINAL: Final = frozenset(
    (
        errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
        errors_pb2.ERROR_REASON_NOT_PERMITTED,
        errors_pb2.ERROR_REASON_NOT_OFFERED,
        errors_pb2.ERROR_REASON_FIELD_INVALID,
        errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
    )
)
_UNREACHED: Final = frozenset(
    (errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, errors_pb2.ERROR_REASON_DEADLINE_PASSED)
)


@dataclass(frozen=True, slots=True)
class RelayedInstance:
    """An instance that is offered at a relay.

    Attributes:
        name: the name that callers ask for, such as `policy`.
        instance_id: unique among live instances.
        servicers: by the full name of their gRPC service, the main service first.
        meta: returns the meta that the registry lists, as it is now.
    """

    name: str
    instance_id: str
    servicers: Mapping[str, object]
    meta: Callable[[], Mapping[str, str]] = field(default=dict)


@dataclass(slots=True)
class _Line:
    """A channel to the relay, and the connection on it."""

    channel: PeerChannel
    connection: MuxConnection

    def retire(self) -> None:
        """Takes no new calls."""
        self.connection.retire()
        self.channel.retire()

    async def close(self) -> None:
        await self.connection.close()
        await self.channel.close()


class RelayDialer:
    """Keeps an instance offered at the relay at HOST:PORT.

    Attributes:
        address: where the mesh reaches the instance; empty before the first offer.
        grace_s: seconds for which the relay keeps that address without a connection.
        offers: how often the relay has accepted the instance.
    """

    def __init__(
        self, relay: str, instance: RelayedInstance, credentials: Credentials | None = None
    ) -> None:
        self.address = ""
        self.grace_s = 0.0
        self.offers = 0
        self._relay = relay
        self._instance = instance
        self._credentials = credentials or Credentials()
        self._key = secrets.token_urlsafe(24)
        self._methods = {
            method.spec.full_name: method
            for service, servicer in instance.servicers.items()
            for method in Binding(service, servicer).methods.values()
        }
        self._line: _Line | None = None
        self._before: list[_Line] = []  # their calls still end
        self._changed = asyncio.Event()  # the meta or the certificates
        self._renewed = False  # the certificates, since the connection was opened
        self._accepted = asyncio.Event()
        self._failure: MeshError | None = None  # of the last attempt
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, timeout: float) -> None:
        """Dials until the relay accepts the instance, for up to ``timeout`` seconds.

        Raises MeshError. A final refusal of the relay is raised at once, any other error after
        ``timeout`` seconds.
        """
        keeping = asyncio.create_task(self._keep())
        self._tasks.append(keeping)
        if self._credentials.encrypts:
            self._tasks.append(asyncio.create_task(self._watch_certificates()))
        try:
            async with asyncio.timeout(timeout):
                await first_of(self._accepted.wait(), asyncio.wait([keeping]))
        except TimeoutError:
            pass
        if not self._accepted.is_set():
            await self.stop(0.0)
            if keeping.done() and not keeping.cancelled():
                keeping.result()
            raise self._failure or MeshError(
                errors_pb2.ERROR_REASON_DEADLINE_PASSED,
                f"{self._relay}: the relay did not answer within {timeout:g} s",
                metadata={"method": _OFFER.full_name},
            )

    def meta_changed(self) -> None:
        """Sends the instance's current meta to the relay."""
        self._changed.set()

    async def stop(self, drain_s: float) -> None:
        """Leaves the relay: refuses new calls, and gives calls in flight ``drain_s`` seconds to
        end.
        """
        await cancel_and_wait(*self._tasks)
        self._tasks.clear()
        line, self._line = self._line, None
        if line is not None:
            exchange = line.connection.exchange
            line.retire()
            if exchange is not None and drain_s:
                try:
                    async with asyncio.timeout(drain_s):
                        await exchange.ended()
                except TimeoutError:
                    _log.warning(
                        "the relay %s: some calls did not end within %g s, so this "
                        "process closes the connection",
                        self._relay,
                        drain_s,
                    )
            self._before.append(line)
        for one in self._before:
            await one.close()
        self._before.clear()

    # ---- dialling -------------------------------------------------------------------

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                exchange = await self._offered()
            except MeshError as failed:
                error = failed
                if not self.offers:
                    error = await self._credentials.explained(failed, self._relay)
                    if error.reason in _FINAL:
                        raise error from None
                self._failure = error
                failures += 1
                # Many that lost one relay would come back at once.
                longest = doubled_s(_FIRST_PAUSE_S, failures, _LONGEST_PAUSE_S)
                pause = longest * random.uniform(0.5, 1.0)
                if failures in (1, 10) or failures % 100 == 0:
                    gone = error.reason in _UNREACHED
                    what = (
                        "this process cannot reach the relay %s: %s; next attempt in %.1f s"
                        if gone
                        else "the relay %s did not accept this instance: %s; next attempt in %.1f s"
                    )
                    _log.warning(
                        what,
                        self._relay,
                        error.message,
                        pause,
                    )
                await asyncio.sleep(pause)
                continue
            if failures:
                _log.warning(
                    "the relay %s accepted the offer (failed attempts before: %d)",
                    self._relay,
                    failures,
                )
            failures = 0
            await self._until_over(exchange)

    async def _offered(self) -> Exchange:
        """A connection on which the relay has accepted the instance. Raises MeshError."""
        line = self._line
        renewed, self._renewed = self._renewed, False  # a change from here on is a further one
        if line is None or renewed:
            line = self._new_line()
        try:
            exchange = await self._dial(line)
            await self._offer(exchange)
        except BaseException:
            if line is not self._line:
                await line.close()
            self._renewed |= renewed
            raise
        if line is not self._line:
            if self._line is not None:
                self._line.retire()
                self._before.append(self._line)
            self._line = line
        return exchange

    def _new_line(self) -> _Line:
        channel = PeerChannel(self._relay, self._credentials)
        channel.keepalive_s = KEEPALIVE_S
        connection = MuxConnection(channel, self._methods, _admit, _OUTLIVE_S)
        return _Line(channel, connection)

    async def _dial(self, line: _Line) -> Exchange:
        line.connection.restore()  # the pauses between attempts are made here
        exchange = await line.connection.open(_OPEN_S, _OFFER.full_name)
        if exchange is None:
            raise not_offered(f"{_OFFER.full_name} at {self._relay}")
        return exchange

    async def _offer(self, exchange: Exchange) -> None:
        instance = self._instance
        self._changed.clear()
        request = relay_pb2.OfferRequest(
            name=instance.name,
            instance_id=instance.instance_id,
            services=list(instance.servicers),
            key=self._key,
            meta=instance.meta(),
            contract_version=CONTRACT_VERSION,
            last_address=self.address,
        )
        answer: relay_pb2.OfferResponse
        answer = await call_unary(exchange, _OFFER, request, _OFFER_S, {})
        if self.address not in ("", answer.address):
            _log.info(
                "the relay accepts calls for '%s' at %s", instance.instance_id, answer.address
            )
        self.address, self.grace_s = answer.address, answer.grace_s
        self.offers += 1
        self._accepted.set()

    async def _until_over(self, exchange: Exchange) -> None:
        """Returns when the connection takes no calls any more, or is to be replaced."""
        while exchange.usable and not self._renewed:
            await first_of(exchange.left(), self._changed.wait())
            if not self._changed.is_set() or not exchange.usable or self._renewed:
                continue
            try:
                await self._offer(exchange)
            except MeshError as error:
                _log.warning(
                    "could not send the instance's changed data to the relay: %s", error.message
                )

    async def _watch_certificates(self) -> None:
        """Connects anew whenever the certificates have changed, and offers the instance there.

        The relay ends the calls on the old connection. They go on here, for a retry.
        """
        version = self._credentials.refresh()
        while True:
            await asyncio.sleep(CHECK_S)
            newest = await asyncio.to_thread(self._credentials.refresh)
            if newest != version:
                version = newest
                self._renewed = True
                self._changed.set()


def _admit(call: IncomingCall) -> None:
    """A call of the relay's, which has let its caller in and says who that is."""
    if RELAYED_IDENTITY in call.metadata:
        metadata = dict(call.metadata)
        call.identity = metadata.pop(RELAYED_IDENTITY)
        call.metadata = metadata

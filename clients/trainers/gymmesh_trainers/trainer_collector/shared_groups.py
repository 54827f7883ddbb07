"""A rank's share of the groups of a run that another process collects."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_client.control import GroupConsumer, RemoteRun, find_run, open_runs, runs_at
from gymmesh_resource import Task
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.security import SecurityConfig
from gymmesh_trainers.rollouts import RolloutGroup
from gymmesh_trainers.trainer_collector.grouping import grouped
from gymmesh_trainers.trainer_collector.loop_thread import LoopThread
from gymmesh_trainers.trainer_collector.settings import seconds, whole_number
from gymmesh_trainers.trainer_collector.weights import WeightsVersions

_LOOK_AGAIN_S: Final = 0.5
# The collector has not started yet.
_NOT_THERE: Final = frozenset(
    (errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, errors_pb2.ERROR_REASON_RUN_NOT_FOUND)
)
_AGAIN: Final = "Drop the unacknowledged groups, and open SharedGroups again"
# Fields of the collector's requests that come from `rank` and `world_size`.
_OF_CONSUMERS: Final = ("consumer", "consumers")
# By the cause that the collector names, after the rank's number.
_REPLACED: Final[Mapping[str, str]] = {
    "lease": "had no connection for longer than --stream-lease, so its groups were sent to other "
    f"ranks. {_AGAIN}",
    "name": "was opened by another process, which replaced this process and got its groups. Drop "
    "the unacknowledged groups, and give each process its own rank",
    "restart": "is unknown to the collector, because the collector was restarted without the file "
    "NAME.groups. No other rank gets the groups that this rank received. Open SharedGroups again",
}


class SharedGroups:
    """The groups that this rank gets of a run that `gym-cli collect --stream` collects.

    Each group is sent to one of the ranks, evenly by tokens. An async context manager:

        async with SharedGroups(rank=rank, world_size=8, at="10.0.0.7:9500") as groups:
            async for group in groups:
                train(group)

    or step by step, if groups are acknowledged once a step is done:

        async with SharedGroups(rank=rank, world_size=8, auto_ack=False) as groups:
            while step := await groups.take(4):
                train(step)
                await groups.ack()

    If a rank dies, its unacknowledged groups are sent to other ranks.

    Args:
        run: the run's id, or the first characters of the id; empty: the only run.
        rank: this process's number, from 0.
        world_size: how many ranks share the groups.
        at: the address of the collector's --stream-listen; empty: the collector is a process of
            this user on this machine.
        security: certificates and token for `at`.
        max_staleness: skip groups whose oldest weights are more than this many versions behind.
        auto_ack: a request for more groups acknowledges the previous ones. False: only `ack` does.
        connect_s: how many seconds to wait for the collector to start.
        reconnect_s: how many seconds the collector may be unreachable later.
        wait_s: how many seconds to wait for a group.

    Raises TypeError and ValueError for invalid arguments. Entering the context raises MeshError if
    there is no such run, and ConfigError for an invalid `security`.

    Attributes:
        counts: `groups`; their rollouts: `rollouts` with a reward, `failed`, `unscored`.
    """

    def __init__(
        self,
        run: str = "",
        *,
        rank: int,
        world_size: int,
        at: str = "",
        security: SecurityConfig | None = None,
        max_staleness: int | None = None,
        auto_ack: bool = True,
        connect_s: float = 60.0,
        reconnect_s: float = 60.0,
        wait_s: float = 3600.0,
    ) -> None:
        whole_number("world_size", world_size, 1)
        whole_number("rank", rank, 0)
        if rank >= world_size:
            raise ValueError(f"rank: must be below world_size ({world_size}), not {rank}")
        if not isinstance(run, str):
            raise TypeError(f"run: must be the run's id, or '' for the only run, not {run!r}")
        seconds("connect_s", connect_s)
        seconds("reconnect_s", reconnect_s)
        seconds("wait_s", wait_s, may_be_zero=False)
        self.counts = Counter[str]()
        self._wanted, self._at, self._security = run, at, security
        self._rank, self._world_size = rank, world_size
        self._max_staleness = max_staleness
        self._auto_ack = auto_ack
        self._connect_s, self._reconnect_s, self._wait_s = connect_s, reconnect_s, wait_s
        self._weights = WeightsVersions(None)
        self._stack = AsyncExitStack()
        self._consumer: GroupConsumer | None = None
        self._ready: list[RolloutGroup] = []  # received by a `take` that raised

    def __repr__(self) -> str:
        return f"<SharedGroups of rank {self._rank} of {self._world_size}: {dict(self.counts)}>"

    async def __aenter__(self) -> SharedGroups:
        run = await self._find_run()
        self._consumer = run.consumer(
            f"rank-{self._rank}",
            consumers=self._world_size,
            max_staleness=self._max_staleness,
            reconnect_s=self._reconnect_s,
        )
        self._stack.push_async_callback(self._consumer.close)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @property
    def finished(self) -> bool:
        """Whether no more groups will arrive. False while other ranks hold unacknowledged groups:
        if such a rank dies, its groups are sent to another rank.
        """
        return self._opened().finished and not self._ready

    async def __aiter__(self) -> AsyncGenerator[RolloutGroup, None]:
        while group := await self.take(1):
            yield group[0]

    async def take(self, most: int) -> list[RolloutGroup]:
        """The next groups: `most` of them, or fewer at the end of the run, and then none.

        With `auto_ack=False`, `take` also returns none while this rank holds the last groups of the
        run unacknowledged. `finished` is then false. After `ack`, groups of a rank that died may
        still arrive.

        If a call received groups before it raised or was cancelled, the next call returns them.

        Raises:
            MeshError: CONSUMER_REPLACED: the collector declared this rank dead. Drop the
                unacknowledged groups and open new SharedGroups. PEER_UNAVAILABLE: the collector was
                unreachable for `reconnect_s`. DEADLINE_PASSED: no group arrived for `wait_s`.
                FIELD_INVALID: a rank may not hold that many unacknowledged groups, see
                --stream-groups. Nothing is acknowledged then.
        """
        whole_number("most", most, 1)
        consumer = self._opened()
        self._refuse_too_many(most)
        if self._auto_ack:
            await self.ack()
        while len(self._ready) < most:
            with self._drops_if_replaced():
                reply = await consumer.next(self._wait_s)
            if reply is None:
                break
            self._ready.append(
                grouped(RolloutGroup(Task(reply.task)), reply.rollouts, self._weights)
            )
            self._refuse_too_many(most)  # the first reply says how many a rank may hold
        found, self._ready = self._ready[:most], self._ready[most:]
        for group in found:
            self.counts.update(
                groups=1,
                rollouts=len(group.rollouts),
                failed=len(group.failed),
                unscored=len(group.unscored),
            )
        return found

    async def ack(self) -> None:
        """Acknowledge all groups that `take` returned. The collector never sends them to another
        rank, even if this rank dies.

        Raises MeshError: CONSUMER_REPLACED if they were already sent to other ranks;
        PEER_UNAVAILABLE.
        """
        consumer = self._opened()
        with self._drops_if_replaced():
            await consumer.acknowledge(consumer.held - len(self._ready))

    def _refuse_too_many(self, most: int) -> None:
        """Raises FIELD_INVALID where the collector would not send so many to this rank."""
        consumer = self._opened()
        limit = consumer.most_unacknowledged
        held = 0 if self._auto_ack else consumer.held - len(self._ready)
        if not limit or held + most <= limit or consumer.finished or consumer.all_sent:
            return
        raise field_invalid(
            "take",
            f"cannot return {most} groups: a rank may hold at most {limit} unacknowledged groups, "
            f"and this rank holds {held}. Take fewer groups at once, or start the collector with a "
            "larger --stream-groups",
        )

    @contextmanager
    def _drops_if_replaced(self) -> Iterator[None]:
        """Drops what is other ranks' now. Errors about consumers name the rank."""
        try:
            yield
        except MeshError as error:
            if error.metadata.get("field") in _OF_CONSUMERS:
                problem = (
                    f"rank {self._rank} can't join with world_size {self._world_size} (each rank "
                    f"is a consumer of the run's groups): {error.message}"
                )
                raise MeshError(error.reason, problem, metadata=error.metadata) from error
            if error.reason != errors_pb2.ERROR_REASON_CONSUMER_REPLACED:
                raise
            self._ready.clear()
            words = _REPLACED.get(error.metadata.get("cause", ""))
            if words is None:
                raise
            raise MeshError(
                error.reason, f"rank {self._rank} {words}", metadata=error.metadata
            ) from error

    async def _find_run(self) -> RemoteRun:
        until = time.monotonic() + self._connect_s
        while True:
            async with AsyncExitStack() as stack:
                opened = runs_at(self._at, self._security) if self._at else open_runs()
                try:
                    run = find_run(await stack.enter_async_context(opened), self._wanted)
                except MeshError as error:
                    if error.reason not in _NOT_THERE:
                        raise
                    if time.monotonic() >= until:
                        raise self._not_found(error) from None
                else:
                    self._stack.push_async_exit(stack.pop_all())
                    return run
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _not_found(self, error: MeshError) -> MeshError:
        """The error after `connect_s`: how long the collector was awaited, and what to check."""
        where = "on this machine as this user"
        if self._at:
            where = f"with --stream-listen, and that this machine can connect to {self._at}"
        return MeshError(
            error.reason,
            f"rank {self._rank} found no collector with the run within {self._connect_s:g} s "
            f"(connect_s). Check that `gym-cli collect --stream` is running {where}. "
            f"Last error: {error.message}",
            metadata=error.metadata,
            code=error.code,
        )

    def _opened(self) -> GroupConsumer:
        if self._consumer is None:
            raise RuntimeError("SharedGroups is not open; open it with `async with groups:`")
        return self._consumer


class SyncSharedGroups:
    """SharedGroups for synchronous code; a context manager. Arguments and members are the same.

    with SyncSharedGroups(rank=rank, world_size=8, at="10.0.0.7:9500") as groups:
        for group in groups: ...
    """

    def __init__(self, run: str = "", **options: Any) -> None:
        self._groups = SharedGroups(run, **options)
        self._thread = LoopThread()

    def __enter__(self) -> SyncSharedGroups:
        self._thread.start()
        try:
            self._thread.run(self._groups.__aenter__())
        except BaseException:
            self._thread.end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._thread.run(self._groups.__aexit__(*error))
        finally:
            self._thread.end()

    def __repr__(self) -> str:
        return f"<Sync{repr(self._groups).removeprefix('<')}"

    @property
    def counts(self) -> Counter[str]:
        return self._groups.counts

    @property
    def finished(self) -> bool:
        return self._groups.finished

    def __iter__(self) -> Iterator[RolloutGroup]:
        while group := self.take(1):
            yield group[0]

    def take(self, most: int) -> list[RolloutGroup]:
        return self._thread.run(self._groups.take(most))

    def ack(self) -> None:
        self._thread.run(self._groups.ack())

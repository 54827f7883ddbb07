"""Doing what a schedule says to a world that is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.collecting import Collecting
from tests.chaos.places import Apart
from tests.chaos.plan import COLLECTOR, STORMS, TO_ENDPOINT, WIRE, Fault
from tests.chaos.processes import GO, KILL, STOP, Clock, Endpoint, Kept, Worker
from tests.support.proxy import Proxy


class Inflicting:
    """Does faults when they are due, and undoes them.

    Attributes:
        done: what was done and when, as faults.json has it.
        missed: what could not be done, and why.
    """

    def __init__(
        self,
        collecting: Collecting,
        services: Mapping[str, Worker],
        endpoint: Endpoint,
        to_endpoint: Proxy,
        to_agents: Sequence[Proxy],
        apart: Apart | None,
    ) -> None:
        self.done: list[dict[str, Any]] = []
        self.missed: list[str] = []
        self._collecting = collecting
        self._services = services
        self._endpoint = endpoint
        self._to_endpoint = to_endpoint
        self._to_agents = to_agents
        self._apart = apart

    async def follow(self, schedule: Sequence[Fault]) -> None:
        """Do all of a schedule; its clock begins with the first attempt."""
        await self._collecting.begun()
        begun = time.monotonic()
        left = list(schedule)
        try:
            async with asyncio.TaskGroup() as group:
                while left:
                    await asyncio.sleep(max(0.0, begun + left[0].at_s - time.monotonic()))
                    group.create_task(self._do(left.pop(0)))
        finally:
            self.missed += [f"{one.name} (the run was over)" for one in left]

    async def _do(self, fault: Fault) -> None:
        said = {**fault.to_json(), "at": time.monotonic()}
        why = await self._inflict(fault, said)
        if why:
            self.missed.append(f"{fault.name} ({why})")

    async def _inflict(self, fault: Fault, said: dict[str, Any]) -> str:
        """Does it; says why not where it cannot be done."""
        if fault.kind in ("kill", "power cut") and fault.target == COLLECTOR:
            return self._noted(said, self._collecting.kill(power=fault.kind == "power cut"))
        if fault.kind == "kill":
            return self._noted(said, self._kept(fault.target).signal(KILL))
        if fault.kind == "file limit":
            return self._noted(said, self._collecting.limit_files())
        if fault.kind == "clock jump":
            self._clock(fault.target).jump(fault.amount)
            return self._noted(said, True)
        if fault.kind == "disk full":
            return await self._fill(said)
        self._noted(said, True)
        try:
            if not await self._begin(fault):
                self.done.remove(said)
                return "not possible on this machine, or the process did not run"
            await asyncio.sleep(fault.seconds)
        finally:
            await self._undo(fault)
        return ""

    async def _begin(self, fault: Fault) -> bool:
        if fault.kind == "stop":
            return self._signal(fault.target, STOP)
        if fault.kind == "partition":
            if self._apart is None:
                return False
            await self._apart.cut()
        elif fault.kind in STORMS:
            self._endpoint.storm(fault.kind, fault.amount)
        elif fault.kind in WIRE:
            for wire in self._wires(fault.target):
                _spoil(wire, fault)
        return True

    async def _undo(self, fault: Fault) -> None:
        if fault.kind == "stop":
            self._signal(fault.target, GO)
        elif fault.kind == "partition" and self._apart is not None:
            await self._apart.mend()
        elif fault.kind in STORMS:
            self._endpoint.storm("", 1.0)
        elif fault.kind in WIRE:
            for wire in self._wires(fault.target):
                wire.heal()

    async def _fill(self, said: dict[str, Any]) -> str:
        if not self._collecting.disk.mounted:
            return self._noted(said, self._collecting.limit_files())
        self._collecting.disk.fill()
        return self._noted(said, True)

    def _noted(self, said: dict[str, Any], done: bool) -> str:
        if not done:
            return "the process did not run"
        self.done.append(said)
        return ""

    def _kept(self, name: str) -> Kept:
        return self._services.get(name) or self._endpoint

    def _clock(self, name: str) -> Clock:
        return self._collecting.clock if name == COLLECTOR else self._services[name].clock

    def _signal(self, name: str, number: int) -> bool:
        if name != COLLECTOR:
            return self._kept(name).signal(number)
        process = self._collecting.process
        if process is None or process.returncode is not None:
            return False
        process.send_signal(number)
        return True

    def _wires(self, name: str) -> Sequence[Proxy]:
        return [self._to_endpoint] if name == TO_ENDPOINT else self._to_agents


def _spoil(wire: Proxy, fault: Fault) -> None:
    if fault.kind == "cut":
        wire.cut()
    elif fault.kind == "mute":
        wire.mute()
    elif fault.kind == "refuse":
        wire.refuse = True
        wire.cut()
    elif fault.kind == "delay":
        wire.delay_s = fault.amount
    else:
        wire.loss = fault.amount

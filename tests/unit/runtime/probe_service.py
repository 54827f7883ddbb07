"""The probe as a service; as a program, the probe in a process of its own.

    python -m tests.unit.runtime.probe_service '{"drain_s": 10}'

prints its address when it is SERVING, and a line for each call that it begins and ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping

from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, serve
from gymmesh_runtime.serving.loop import run
from gymmesh_runtime.serving.service import Service
from tests.unit.runtime.probe import MODEL, Probe


class ProbeService(Service):
    """Records its life in ``events``; ``open_fails`` is raised when it is opened."""

    kind = MODEL
    name = "policy"

    def __init__(
        self, instance_id: str = "probe-0", *, open_fails: Exception | None = None
    ) -> None:
        self.instance_id = instance_id
        self.probe: Probe = Probe()
        self.events: list[str] = []
        self._open_fails = open_fails

    def servicers(self) -> Mapping[str, object]:
        return {MODEL: self.probe}

    async def open(self, directory: PeerDirectory) -> None:
        self.events.append("open")
        if self._open_fails is not None:
            raise self._open_fails

    async def close(self) -> None:
        self.events.append("close")


class SlowProbe(Probe):
    """Takes half a second for a call, and says when it begins and ends."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        if request.rollout_id != "slow":
            return await super().CreateResponse(request, context)
        print("begun", flush=True)
        await asyncio.sleep(0.5)
        print("ended", flush=True)
        return model_pb2.CreateResponseResponse(call_id=request.request_id)


def main() -> None:
    options = ServeOptions(**json.loads(sys.argv[1]))
    service = ProbeService()
    service.probe = SlowProbe()
    run(serve(service, options, lambda served: print(served.instance.address, flush=True)))
    print("closed" if service.events == ["open", "close"] else service.events, flush=True)


if __name__ == "__main__":
    main()

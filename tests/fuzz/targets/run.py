"""RunService: a collector whose run waits for its model, and still ends well."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from gymmesh.run.v1 import run_pb2
from gymmesh_runtime.contract import MethodSpec, methods_of
from tests.fuzz.calls import ask
from tests.fuzz.good import Good
from tests.fuzz.judge import problems_of_log
from tests.fuzz.mesh import READY_S, Mesh, Started, solved, start
from tests.fuzz.stock import Stock
from tests.fuzz.targets.rpc import Face, RpcTarget
from tests.support import endpoint as fake
from tests.support.cli import rows_of, sums, write_tasks

RUN: Final = "gymmesh.run.v1.RunService"
_TASKS: Final = 8
_LONG_S: Final = "7200"


class RunTarget(RpcTarget):
    """The RunService of a collector of its own, with its token and without.

    The words know the run, but not its tasks; and requests to end it go to another one. So all
    rollouts are to be completed afterwards.
    """

    def __init__(self, mesh: Mesh, stock: Stock, *, huge: float) -> None:
        super().__init__("run", [], mesh.channel, huge=huge)
        self._mesh = mesh
        self._stock = stock
        self._gate = asyncio.Event()
        self._endpoint = fake.FakeEndpoint(default=self._answer)
        self._collector: Started | None = None
        self._rows = mesh.folder / "run" / "rows.jsonl"
        self._note: dict[str, Any] = {}

    async def open(self) -> None:
        folder = self._mesh.folder / "run"
        folder.mkdir()
        await self._endpoint.start()
        tasks = write_tasks(folder, sums(_TASKS))
        settings = (
            "models.policy.timeout_s",
            "agents.tool_loop.max_wall_s",
            "agents.tool_loop.model_timeout_s",
        )
        self._collector = await start(
            "collector", folder, "collect", "-i", tasks, "-o", self._rows, "-q",
            "--concurrency", "2", "--timeout", _LONG_S,
            "--model-url", self._endpoint.url, "--model", "fake",
            *(part for key in settings for part in ("--set", f"{key}={_LONG_S}")),
            env={"GYMMESH_RUNTIME_DIR": str(folder)},
        )  # fmt: skip
        self._mesh.started.append(self._collector)
        self._note = await _note_in(folder / "runs", self._collector)
        bearer = f"Bearer {self._note['token']}"
        words = {"run_id": [self._note["run_id"]] * 3 + ["run-other"], "task_id": ["none"]}
        good, methods = Good(self._stock), list(methods_of(RUN).values())
        address = self._note["address"]
        shown = Face(address, methods, words, good, metadata=[("authorization", bearer)])
        unknown = Face(address, methods, words, good)
        self._faces = [shown, shown, shown, unknown]
        self._methods = [(face, one) for face in self._faces for one in face.methods]
        await super().open()

    def allowed(self, spec: MethodSpec, requests: list[bytes]) -> list[bytes]:
        """Nothing that would end the run."""
        if spec.name != "ControlRun":
            return requests
        try:
            command = run_pb2.ControlRunRequest.FromString(requests[0])
        except DecodeError:
            return requests
        ends = command.WhichOneof("command") in ("drain", "cancel")
        if ends and command.run_id == self._note["run_id"]:
            command.run_id = "run-other"
            return [command.SerializeToString()]
        return requests

    async def after(self) -> list[str]:
        """The run goes on, and all its rollouts get their rewards."""
        assert self._collector is not None
        channel = self._mesh.channel(self._note["address"])
        metadata = [("authorization", f"Bearer {self._note['token']}")]
        for command in ({"tune": run_pb2.TuneRun(concurrency=4)}, {"resume": run_pb2.ResumeRun()}):
            request = run_pb2.ControlRunRequest(run_id=self._note["run_id"], **command)
            await ask(channel, f"{RUN}/ControlRun", request, run_pb2.ControlRunResponse, metadata)
        await channel.close()
        self._mesh.started.remove(self._collector)
        self._gate.set()
        async with asyncio.timeout(READY_S):
            code = await self._collector.process.wait()
        rewards = [row["reward"] for row in rows_of(self._rows)]
        log = self._collector.log.read_text()
        problems = problems_of_log(log)
        if code != 0 or rewards != [1.0] * _TASKS:
            problems.append(f"the run ended with exit code {code} and {rewards}: {log[-2000:]}")
        return problems

    async def close(self) -> None:
        await super().close()
        if self._collector is not None:
            await self._collector.down()
        await self._endpoint.stop()

    def _answer(self, seen: fake.Seen) -> fake.Send:
        return fake.gate(self._gate, solved(seen))


async def _note_in(folder: Path, collector: Started) -> dict[str, Any]:
    """What the collector says of its run, once it does."""
    async with asyncio.timeout(READY_S):
        while not (found := list(folder.glob("*.json"))):
            if collector.process.returncode is not None:
                raise RuntimeError(collector.log.read_text())
            await asyncio.sleep(0.05)
    note: dict[str, Any] = json.loads(found[0].read_text())
    return note

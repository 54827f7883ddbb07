"""A taskset for these tests: sums, played by a harness in the process of verifiers itself.

Loaded by verifiers, by path. What a task's question ends with has its scoring, or its harness, do
what other people's code does: raise, die, hang, take too long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import httpx
import verifiers.v1 as vf

__all__ = ["SumsHarness", "SumsTaskset"]


class SumsData(vf.TaskData):
    answer: str
    fault: str = ""


class SumsTask(vf.Task[SumsData]):
    @vf.reward(weight=1.0)
    async def correct(self, task: SumsData, trace: vf.Trace) -> float:
        if task.fault == "scorer":
            raise ValueError("the scorer is broken")
        if task.fault == "slow":
            await asyncio.sleep(3600)
        if task.fault == "endless":
            return float("nan")
        return float(trace.last_reply == task.answer)

    @vf.reward(weight=0.25)
    async def brief(self, trace: vf.Trace) -> float:
        return 1.0 if len(trace.last_reply) < 3 else 0.5

    @vf.metric
    async def characters(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class SumsConfig(vf.TasksetConfig):
    tasks: int = 100
    faults: tuple[str, ...] = ()


class SumsTaskset(vf.Taskset[SumsTask, SumsConfig]):
    def load(self) -> Iterator[SumsTask]:
        for number in range(self.config.tasks):
            # Every second task has one of them, in turn: the others go on.
            faults = self.config.faults
            fault = faults[number // 2 % len(faults)] if number % 2 and faults else ""
            yield SumsTask(
                SumsData(
                    prompt=f"What is {number} + {number}?",
                    system_prompt="Answer with the number alone.",
                    answer=str(2 * number),
                    fault=fault,
                    timeout=vf.TaskTimeout(scoring=0.2 if fault == "slow" else None),
                ),
                self.config.task,
            )


class SumsHarness(vf.Harness[vf.HarnessConfig]):
    """Asks twice: for a thought, and for the answer."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: SumsData,
        **_: Any,
    ) -> vf.ProgramResult:
        if data.fault == "die":
            os._exit(7)
        if data.fault == "harness":
            return vf.ProgramResult(exit_code=1, stdout="", stderr="the harness is broken")
        if data.fault == "hang":
            await asyncio.sleep(3600)
        messages = [
            {"role": "system", "content": data.system_prompt},
            {"role": "user", "content": data.prompt},
        ]
        async with httpx.AsyncClient(timeout=60) as client:
            for question in ("", "And now the number."):
                if question:
                    messages.append({"role": "user", "content": question})
                answer = await client.post(
                    f"{endpoint}/chat/completions",
                    headers={"Authorization": f"Bearer {secret}"},
                    json={"model": ctx.model, "messages": messages},
                )
                if answer.is_error:
                    return vf.ProgramResult(exit_code=1, stdout="", stderr=answer.text)
                messages.append(answer.json()["choices"][0]["message"])
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

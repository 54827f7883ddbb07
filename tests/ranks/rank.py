"""One rank of a trainer, as a process: it takes groups, "trains", and notes what it does.

    python -m tests.ranks.rank ADDRESS TOKEN_FILE RANK WORLD_SIZE LOG [DIE_AT]

Each line of the log is one word and, of a group, its task and tokens. `acking` comes before the
call and `acked` after its answer: a process that is killed between the two leaves that open.
DIE_AT: kill itself between receiving its so-manieth group and acknowledging it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import SecurityConfig
from gymmesh_trainers import RolloutGroup, SharedGroups

WAIT_S = 240.0


class Log:
    """Lines of a file, each written at once, so that a kill loses none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def tokens_of(group: RolloutGroup) -> int:
    """The tokens that the endpoint counted."""
    return sum(
        call.response.usage.output_tokens
        for rollout in group.rollouts
        for call in rollout.message.model_calls
    )


async def work(
    address: str, token_file: str, rank: int, world_size: int, log: Log, die_at: int
) -> None:
    chance = random.Random(rank)
    received, began = 0, 0.0
    while True:
        security = SecurityConfig(token_file=token_file)
        groups = SharedGroups(
            rank=rank,
            world_size=world_size,
            at=address,
            security=security,
            auto_ack=False,
            wait_s=WAIT_S,
        )
        try:
            async with groups:
                while step := await groups.take(1):
                    (group,) = step
                    began = began or time.monotonic()
                    log.note("got", group.task.id, tokens_of(group))
                    received += 1
                    if received == die_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    await asyncio.sleep(chance.uniform(0.0, 0.004))
                    log.note("acking", group.task.id, tokens_of(group))
                    await groups.ack()
                    log.note("acked", group.task.id, tokens_of(group))
                log.note("end", f"{began:.1f}")
                return
        except MeshError as error:
            if error.reason_name != "CONSUMER_REPLACED":
                log.note("failed", error.reason_name, error)
                raise
            log.note("replaced", error.metadata["cause"])


def main() -> None:
    address, token_file, rank, world_size, log, *more = sys.argv[1:]
    die_at = int(more[0]) if more else 0
    asyncio.run(work(address, token_file, int(rank), int(world_size), Log(Path(log)), die_at))


if __name__ == "__main__":
    main()

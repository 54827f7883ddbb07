"""The local runtime of verifiers: a folder and subprocesses; run by the Python of its own."""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
from typing import Any

from tests.scale.rollout_bench import talk
from tests.scale.sandbox_bench import work


class Runtimes:
    """See Sandboxes. `kind`: the class of its runtime; `config`: the class of its settings."""

    def __init__(self, kind: Any, config: Any) -> None:
        self._kind, self._config = kind, config

    async def make(self) -> Any:
        runtime = self._kind(self._config())
        await runtime.start()
        return runtime

    async def run(self, sandbox: Any) -> None:
        result = await sandbox.run([work.PROGRAM], {})
        if result.exit_code:
            raise RuntimeError(f"{work.PROGRAM} ended with {result.exit_code}")

    async def end(self, sandbox: Any) -> None:
        await sandbox.stop()


async def main() -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    import verifiers
    from verifiers.v1.runtimes.subprocess import SubprocessConfig, SubprocessRuntime

    runtimes = Runtimes(SubprocessRuntime, SubprocessConfig)
    await work.answer(say, {"version": verifiers.__version__}, runtimes)


if __name__ == "__main__":
    asyncio.run(main())

"""Harbor's own runner over task folders: a line of JSON for each trial. Run by Harbor's Python.

Usage: own_runner.py TRIALS_FOLDER [PAIR...]; a pair is `oracle=TASK_FOLDER` or `nop=TASK_FOLDER`.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

_AT_ONCE = os.cpu_count() or 1


async def _trial(trials: Path, agent: str, folder: Path) -> dict[str, Any]:
    from harbor.models.environment_type import EnvironmentType
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    config = TrialConfig(
        task=TaskConfig(path=folder),
        trials_dir=trials,
        trial_name=f"{folder.name}-{agent}",
        agent=AgentConfig(name=agent),
        # Deleting takes the image away with the containers.
        environment=EnvironmentConfig(type=EnvironmentType.PODMAN, delete=False),
        # A task names the time of its tests; all else has what a busy machine needs.
        timeout_multiplier=10.0,
        verifier_timeout_multiplier=1.0,
    )
    answer: dict[str, Any] = {"task": folder.name, "agent": agent, "rewards": None, "error": ""}
    try:
        result = await (await Trial.create(config)).run()
    except Exception as error:
        return {**answer, "error": f"{type(error).__name__}: {error}"}
    if result.verifier_result is not None:
        answer["rewards"] = result.verifier_result.rewards
    infos = [result.exception_info, *(one.exception_info for one in result.step_results or ())]
    answer["error"] = "; ".join(f"{one.exception_type}: {one.exception_message}"
                                for one in infos if one is not None)  # fmt: skip
    return answer


async def main() -> None:
    """Runs the trials, a few at a time."""
    trials, pairs = Path(sys.argv[1]), [pair.partition("=")[::2] for pair in sys.argv[2:]]
    places = asyncio.Semaphore(_AT_ONCE)
    out = sys.stdout

    async def one(agent: str, folder: str) -> None:
        async with places:
            answer = await _trial(trials, agent, Path(folder))
        print(json.dumps(answer), file=out, flush=True)

    sys.stdout = sys.stderr  # the runner prints
    await asyncio.gather(*(one(agent, folder) for agent, folder in pairs))


if __name__ == "__main__":
    asyncio.run(main())

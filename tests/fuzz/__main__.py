"""Fuzzing: python -m tests.fuzz, which `make fuzz` calls. docs/how-to/security.md explains it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.campaign import Plan, Report, afterwards, fuzzed
from tests.fuzz.choose import SECURED, TARGETS, opened, spare_registry
from tests.fuzz.mesh import ENVIRONMENTS, FEW, running
from tests.fuzz.stock import Stock


def main() -> int:
    """Runs the targets; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="make fuzz",
        description="Sends malformed messages to services, and checks the answers.",
    )
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help=f"fuzz only these targets (default: all): {', '.join(TARGETS)}",
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="minutes for each target (default: 10)"
    )
    parser.add_argument(
        "--cases", type=int, help="number of cases for each target, instead of --minutes"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the cases (default: 0)")
    parser.add_argument(
        "--case", type=int, help="run only the case with this number, to reproduce a problem"
    )
    parser.add_argument("--at-once", action="store_true", help="fuzz all targets at the same time")
    parser.add_argument(
        "--small", action="store_true", help="use a mesh with only two environments"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the configurations and logs in FOLDER. Without this option, they are kept only "
        "after a problem, in a temporary folder",
    )
    asked = parser.parse_args()
    unknown = set(asked.targets) - set(TARGETS)
    if unknown:
        parser.error(
            f"unknown target: {', '.join(sorted(unknown))} (choose from {', '.join(TARGETS)})"
        )
    counted = asked.cases is not None or asked.case is not None
    plan = Plan(asked.seed, asked.case, asked.cases, None if counted else asked.minutes * 60)
    base = asked.keep or Path(tempfile.mkdtemp(prefix="gymmesh-fuzz-"))
    try:
        reports = asyncio.run(_until_told(_run(asked, plan, base)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("interrupted: all processes of the test were ended")
        return 130
    found = any(one.problems for one in reports)
    if found:
        print(f"The configurations and logs are in {base}")
    elif asked.keep is None:
        shutil.rmtree(base)
    return 1 if found else 0


async def _until_told(running: Coroutine[Any, Any, list[Report]]) -> list[Report]:
    """Ends early on SIGTERM, too, with all that was started taken away."""
    task = asyncio.ensure_future(running)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _run(asked: argparse.Namespace, plan: Plan, base: Path) -> list[Report]:
    names = asked.targets or list(TARGETS)
    reports = []
    for secured in (False, True):
        chosen = [name for name in names if (name in SECURED) is secured]
        together = [chosen] if asked.at_once else [[name] for name in chosen]
        for group in filter(None, together):
            folder = base / "-".join(group)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            reports += await _group(group, folder, plan, FEW if asked.small else ENVIRONMENTS)
    return reports


async def _group(
    names: Sequence[str], folder: Path, plan: Plan, environments: Sequence[str]
) -> list[Report]:
    """Targets side by side on one mesh."""
    secured = names[0] in SECURED
    async with contextlib.AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(
            running(folder, FEW if secured else environments, secured=secured)
        )
        if not secured:
            await stack.enter_async_context(spare_registry(mesh))
        stock = await stack.enter_async_context(Stock(mesh))
        targets = [
            await stack.enter_async_context(
                opened(name, mesh, stock, long=plan.seconds is not None)
            )
            for name in names
        ]
        reports = await asyncio.gather(*(fuzzed(target, mesh, plan) for target in targets))
        for problem in await afterwards(mesh):
            reports[-1].add(problem)
        logged = len(mesh.log_text())
    print(f"{', '.join(names)}: the services' logs have {logged} characters")
    for report in reports:
        print("\n".join(report.lines()), flush=True)
    return list(reports)


if __name__ == "__main__":
    sys.exit(main())

"""Measures the inputs of the capacity model in docs/ideas/scaling.md, with real services.

    python -m tests.scale.bench_scaling [--only registry|directory|fanout|collectors|loss …]

Writes tests/scale/scaling/figures.json. Then `make scaling ARGS=--write` writes the page. The
bench takes four minutes, and needs a machine without other work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from tests.scale.report import machine
from tests.scale.scaling import (
    measure_collectors,
    measure_directory,
    measure_fanout,
    measure_loss,
    measure_registry,
)
from tests.scale.scaling.figures import PATH

PARTS: Final[dict[str, Callable[[], Any]]] = {
    "registry": lambda: asyncio.run(measure_registry.measure_all()),
    "directory": measure_directory.measure_all,
    "fanout": measure_fanout.measure_all,
    "collectors": measure_collectors.measure_all,
    "loss": measure_loss.measure_all,
}


def main() -> None:
    """Measures, and writes the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), help="measure only these parts"
    )
    arguments = parser.parse_args()
    found: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
    for name in arguments.only:
        print(f"{name} …", flush=True)
        found[name] = PARTS[name]()
        found["machine"] = machine()
        PATH.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

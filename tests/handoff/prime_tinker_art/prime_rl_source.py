"""Where prime-rl is, which is on no package index: GYMMESH_TEST_PRIME_RL names its repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.support.optional import require

_SOURCE: Final = os.environ.get("GYMMESH_TEST_PRIME_RL", "")
# Its packages, and a harness in verifiers' process: its own start a program for each segment.
FOLDERS: Final = [
    Path(_SOURCE) / "src",
    Path(_SOURCE) / "packages" / "prime-rl-configs" / "src",
    Path(__file__).parents[2] / "bridges" / "verifiers",
]


def need_prime_rl() -> None:
    """Make prime-rl importable, or skip."""
    require(
        _SOURCE and all(map(Path.is_dir, FOLDERS)),
        "prime-rl's repository",
        "git clone https://github.com/PrimeIntellect-ai/prime-rl, and set GYMMESH_TEST_PRIME_RL",
    )
    sys.path += [str(one) for one in FOLDERS if str(one) not in sys.path]

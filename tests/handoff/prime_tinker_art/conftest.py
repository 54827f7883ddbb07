"""Where prime-rl is, which is on no package index: GYMMESH_TEST_PRIME_RL names its repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_SOURCE: Final = os.environ.get("GYMMESH_TEST_PRIME_RL", "")
# Its packages, and a harness in verifiers' process: its own start a program for each segment.
PRIME_RL_PATH: Final = (
    [
        Path(_SOURCE) / "src",
        Path(_SOURCE) / "packages" / "prime-rl-configs" / "src",
        Path(__file__).parents[2] / "bridges" / "verifiers",
    ]
    if _SOURCE
    else []
)
sys.path += map(str, PRIME_RL_PATH)

# LiteLLM, which ART imports, would look for its prices in the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

"""Exports and logs in the hands of those that they are for: trainers' and other tools' own code.

Opt-in (`make test-handoff`), since these frameworks live in environments of their own, made by
tools/setup-handoff.sh: `loaders` (datasets, pyarrow, Inspect, Harbor), `trackers` (W&B, MLflow,
Trackio), `trainers` (torch, TRL, veRL, OpenRLHF, SkyRL, NeMo Gym, Ray) and `prime_tinker_art`
(torch, verifiers for prime-rl, tinker-cookbook, ART). GYMMESH_TEST_HANDOFF says in which one this
runs; the folder of that name is collected, and without it nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOM: Final = os.environ.get("GYMMESH_TEST_HANDOFF", "")

# No hub is asked for anything: what is loaded is made here.
os.environ.update(HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1", WANDB_MODE="disabled")
# NeMo Gym would put these into the working directory.
for name in ("HF_HOME", "HF_DATASETS_CACHE"):
    os.environ.setdefault(
        name, str(Path(__file__).parents[2] / ".cache" / "handoff" / "huggingface")
    )

collect_ignore = [
    str(one) for one in Path(__file__).parent.iterdir() if one.is_dir() and one.name != ROOM
]

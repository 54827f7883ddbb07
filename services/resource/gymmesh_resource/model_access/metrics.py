"""What an environment counts of the models that it calls."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter

_CALLS: Final = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200)

ENVIRONMENT_MODEL_CALLS: Final = counter(
    "gymmesh_environment_model_calls_total",
    "Model calls that environments made (judges, simulated users), by outcome (ok, or a reason).",
    "environment model outcome",
)

"""Metrics of the model calls that environments make."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter

ENVIRONMENT_MODEL_CALLS: Final = counter(
    "gymmesh_environment_model_calls_total",
    "Model calls that environments made (judges, simulated users), by outcome (ok, or a reason).",
    "environment model outcome",
)

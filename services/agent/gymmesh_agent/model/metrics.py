"""What an agent counts of the tokens of model calls."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter

TOKEN_FORKS: Final = counter(
    "gymmesh_token_forks_total",
    "Model calls whose prompt does not begin with the tokens of the previous call, by reason.",
    "model reason",
)
TOKEN_DIVERGENCES: Final = counter(
    "gymmesh_token_divergences_total",
    "Model calls whose prompt does not begin with the tokens of the previous call, although the "
    "model service declared no fork.",
    "model",
)

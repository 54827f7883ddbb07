"""How many tokens a rollout's model calls had. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def tokens_of(row: Mapping[str, Any]) -> tuple[int, int]:
    """Prompt tokens and answer tokens of all model calls of a row's agent.

    `response.usage` has those of the main conversation alone; sub-agents, titles and other
    conversations are in `actors`. Calls of the environment (`model_usage`) do not count.
    """
    usages = [(row.get("response") or {}).get("usage") or {}]
    usages += [actor.get("usage") or {} for actor in row.get("actors") or ()]
    read = sum(usage.get("input_tokens") or 0 for usage in usages)
    return read, sum(usage.get("output_tokens") or 0 for usage in usages)

"""The usage of model calls that an environment makes for a rollout."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2


class UsageCounter:
    """Calls and tokens by model service."""

    def __init__(self) -> None:
        self._entries: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, model: str, usage: responses_pb2.Usage) -> None:
        """Count one answered call; tokens that the endpoint did not report count as 0."""
        self._entries[model].update(
            calls=1,
            input_tokens=max(usage.input_tokens, 0),
            output_tokens=max(usage.output_tokens, 0),
        )

    def entries(self) -> list[rollout_pb2.ModelCallUsage]:
        """The sums, in the order in which the models were first called."""
        return merged((self,))


def merged(counters: Iterable[UsageCounter]) -> list[rollout_pb2.ModelCallUsage]:
    """The sums of several counters by model."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for usage_counter in counters:
        for model, entry in usage_counter._entries.items():
            sums[model].update(entry)
    return [rollout_pb2.ModelCallUsage(model=model, **entry) for model, entry in sums.items()]

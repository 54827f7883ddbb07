"""The fake endpoint as the bench sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.scale.served_process import ServedProcess, served


class Endpoint(ServedProcess):
    """The fake endpoint, while it runs."""

    def answer_within(self, shortest_s: float, longest_s: float) -> None:
        """Answers after a uniform random time from then on."""
        self.ask(f"{shortest_s} {longest_s}")


def endpoint() -> AbstractContextManager[Endpoint]:
    """The fake endpoint in a process of its own."""
    return served("tests.scale.rollout_bench.endpoint", Endpoint)

"""The scripted model server as the bench sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.scale.served_process import ServedProcess, served


class ScriptedEndpoint(ServedProcess):
    """The model server, while it runs."""

    def answer_after(self, seconds: float) -> None:
        """Later calls take so long, and those that are held are answered."""
        self.ask(str(seconds))

    def hold(self) -> None:
        """Later calls are answered when `answer_after` says so."""
        self.ask("hold")


def endpoint() -> AbstractContextManager[ScriptedEndpoint]:
    """The model server in a process of its own."""
    return served("tests.scale.gateway_bench.endpoint", ScriptedEndpoint)

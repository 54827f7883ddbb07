"""What an environment raises while it closes is logged with its own lines, and stops nothing."""

from __future__ import annotations

import logging

import pytest

from gymmesh_resource import Environment, Rollout, Session
from tests.unit.resource.served import served


class Untidy(Environment[None]):
    """Fails whenever it closes something."""

    def close_session(self, session: Session[None]) -> None:
        raise OSError("the session's folder is gone")

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0

    async def close(self) -> None:
        raise OSError("the database is gone")


async def test_the_traceback_begins_with_the_environments_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(Untidy()) as mesh:
        session = await mesh.create()
        await mesh.close(session.session_id)
    formatter = logging.Formatter()
    shown = [formatter.formatException(one.exc_info) for one in caplog.records if one.exc_info]
    assert [text.splitlines()[-1] for text in shown] == [
        "OSError: the session's folder is gone",
        "OSError: the database is gone",
    ]
    for text in shown:
        assert "test_closing_faults.py" in text.splitlines()[1]

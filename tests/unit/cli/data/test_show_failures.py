"""gym-cli show, of the file of a run's failures, whose checksums stand in the run's journal."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_client import OpenOptions, OutputFiles, RunIdentity, RunOutput
from gymmesh_responses import dumps
from gymmesh_view.rows.sources import find_sources
from tests.unit.data.rows import row, text

FAILURE = {
    "boundary": "MODEL",
    "status": {"code": 14, "message": "it is away", "reason": "MODEL_UNAVAILABLE"},
    "retry_safe": True,
    "component": "policy",
    "call_id": "c1",
}


@pytest.fixture(params=["out.jsonl", "out", "out.jsonl.zst"])
async def files(request: pytest.FixtureRequest, tmp_path: Path) -> OutputFiles:
    """A run of which one rollout completed and one failed."""
    files = OutputFiles(tmp_path / request.param)
    output = RunOutput.open(files, RunIdentity("t", "c"), OpenOptions())
    one, two = output.rollout_id("sum-1", 0), output.rollout_id("sum-2", 0)
    await output.completed(one, 1, dumps(row(text("5"))))
    await output.failed(two, 1, 1, dumps(row(task="sum-2", reward=None, failure=FAILURE)))
    await output.close()
    return files


def show(path: Path) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["show", str(path)])
    return done.exit_code, done.output


async def test_a_runs_failures_are_read_with_its_journal(files: OutputFiles) -> None:
    code, said = show(files.failures)
    assert (code, said.splitlines()[0][:10]) == (0, "task sum-2")
    assert "it is away" in said
    assert "journal" not in said


async def test_a_failure_that_was_changed_is_refused(files: OutputFiles) -> None:
    files.failures.write_bytes(files.failures.read_bytes().replace(b"it is away", b"it is here"))
    code, said = show(files.failures)
    assert code
    assert "was changed" in said


async def test_alone_it_is_read_as_any_file(files: OutputFiles) -> None:
    files.journal.unlink()
    code, said = show(files.failures)
    assert code == 0
    assert f"{files.failures}: the journal is missing" in said


async def test_a_page_of_it_names_the_run(
    files: OutputFiles, caplog: pytest.LogCaptureFixture
) -> None:
    find_sources([files.failures])
    assert "the journal is missing" not in caplog.text
    run = files.rows.with_name("out.jsonl") if files.compressed else files.rows
    assert caplog.text.rstrip().endswith(f"pass the run's output instead: {run}")

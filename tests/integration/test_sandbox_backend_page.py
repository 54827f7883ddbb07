"""The backend of docs/how-to/sandbox-backends.md, found by its entry point, does what a backend
has to do.

`make test-sandboxes` runs all cases of the suite against it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.optional import require
from tests.support.own_backend import EXAMPLE, PAGE, install_own_backend
from tests.support.served import serve

pytestmark = pytest.mark.timeout(300)
# One or two of everything that a backend is asked for.
CASES = (
    "says_what_it_is", "makes_a_sandbox", "sandboxes_are_apart", "what_was_asked_for_is_there",
    "image_that_is_not_there", "ends_what_runs", "fields_that_are_required",
    "unpacks_what_is_compressed", "members_through_a_link", "packs_names_of_any_bytes",
    "words_of_any_bytes", "program_that_is_not_there", "ended_by_a_signal", "gets_standard_input",
    "much_output", "a_descendant_holds_nothing_open", "writes_and_reads", "follows_links_within",
    "names_of_any_bytes", "signals_descendants", "ends_with_its_sandbox", "has_no_snapshots",
)  # fmt: skip


def test_the_page_has_the_example_as_it_is() -> None:
    (block,) = PAGE.of("python")
    assert block.text == EXAMPLE.read_text()
    assert len(block.text.splitlines()) <= 110


async def test_it_passes_the_conformance_suite(tmp_path: Path) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    config, log = tmp_path / "mesh.yaml", tmp_path / "serve.log"
    section = {"backend": "namespaces", "places": 16, "adapts": False}
    config.write_text(yaml.safe_dump({"sandboxes": {"boxes": section}}))
    prefix = install_own_backend(tmp_path / "packages")
    served = await serve("sandbox", "boxes", "--config", config, log=log, prefix=prefix)
    try:
        suite = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gymmesh_cli", "conformance", "--service", "sandbox"),
            *("--target", served.said["address"], "--json"),
            *(word for case in CASES for word in ("--case", case)),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await suite.communicate()
        assert await served.goes_down(60) == 0, log.read_text()
    finally:
        await served.kill()
    outcomes = {one["name"]: one for one in json.loads(said)}
    assert {name: one["outcome"] for name, one in outcomes.items()} == dict.fromkeys(
        CASES, "passed"
    ), json.dumps(outcomes, indent=1)

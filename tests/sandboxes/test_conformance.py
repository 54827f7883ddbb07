"""The conformance suite against a sandbox service on each backend, as `gym-cli` runs both."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sandboxes.conftest import CONFORMANCE
from tests.sandboxes.engines import daemons
from tests.support.optional import require
from tests.support.own_backend import install_own_backend
from tests.support.served import serve

# 195 cases, most with a sandbox of their own: 17 minutes on a machine with a load of 40.
pytestmark = pytest.mark.timeout(3600)
_NOBODY = 65_534
_GOES_DOWN_S = 60.0


@dataclass(frozen=True)
class Tried:
    """A backend that the suite is run against.

    Attributes:
        name: in the report.
        section: of the configuration, in addition to what all have.
        other_user: a user of its image; empty: it has one user.
        nobody: whether the service is run by a user without privileges.
        hostile: whether hostile programs are run in it, too.
    """

    name: str
    section: Mapping[str, Any]
    other_user: str = "nobody"
    nobody: bool = False
    hostile: bool = True


_OWN = "of the docs"
_TRIED = [
    Tried("bubblewrap", {"backend": "bubblewrap"}),
    Tried("bubblewrap, not root", {"backend": "bubblewrap"}, other_user="", nobody=True),
    Tried(_OWN, {"backend": "namespaces"}, other_user="", hostile=False),
    *(Tried(one.name, {"backend": "docker", "options": one.options}) for one in daemons()),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user may come to."""
    folder = Path(tempfile.mkdtemp(prefix="gymmesh-conformance-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("tried", [pytest.param(one, id=one.name) for one in _TRIED])
async def test_conformance(tried: Tried, folder: Path, request: pytest.FixtureRequest) -> None:
    section: dict[str, Any] = {
        "places": 16,
        "adapts": False,
        "default_resources": {"memory_bytes": 256 << 20, "pids": 128},
        **tried.section,
    }
    if tried.section["backend"] == "bubblewrap":
        require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
        store = folder / "store"
        store.mkdir()
        if tried.nobody:
            os.chown(store, _NOBODY, _NOBODY)
            section["default_resources"] = {"pids": 128}  # no control groups bound the memory
        section["options"] = {"folder": str(store)}
    config = folder / "mesh.yaml"
    config.write_text(yaml.safe_dump({"sandboxes": {"boxes": section}}))
    profile = folder / "profile.yaml"
    names = {"python": "python3", "hostile": tried.hostile}
    profile.write_text(
        yaml.safe_dump(names | ({"other_user": tried.other_user} if tried.other_user else {}))
    )
    prefix, python = _as_nobody(store) if tried.nobody else ((), sys.executable)
    if tried.name == _OWN:
        prefix = install_own_backend(folder / "packages")
    log = folder / "serve.log"
    served = await serve(
        "sandbox", "boxes", "--config", config, log=log, prefix=prefix, python=python
    )
    try:
        code, results = await _suite(served.said["address"], profile)
        gone = await served.goes_down(_GOES_DOWN_S)
    finally:
        await served.kill()
    lacks = Counter(one["lacks"] for one in results if one["outcome"] == "skipped")
    outcomes = Counter(one["outcome"] for one in results)
    request.config.stash[CONFORMANCE][tried.name] = (outcomes, lacks)
    failed = [one for one in results if one["outcome"] not in ("passed", "skipped")]
    assert not failed, json.dumps(failed, indent=1)
    assert (code, gone) == (0, 0), log.read_text()
    assert len(results) > 60


async def _suite(address: str, profile: Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of the suite and the result of each case."""
    suite = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gymmesh_cli", "conformance", "--service", "sandbox"),
        *("--target", address, "--profile", str(profile), "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await suite.communicate()
    assert suite.returncode is not None
    return suite.returncode, json.loads(said)


def _as_nobody(home: Path) -> tuple[tuple[str, ...], str]:
    """What a command line begins with to be run by nobody, and an interpreter for that."""
    prefix = (
        *("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
        # An interpreter in root's home is not for others, the packages that it has are.
        *("env", f"PYTHONPATH={os.pathsep.join(filter(None, sys.path))}", f"HOME={home}"),
    )
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (os.path.realpath(sys.executable), f"/usr/bin/{version}"):
        command = [*prefix, python, "-c", "import gymmesh_cli"]
        if os.spawnvp(os.P_WAIT, command[0], command) == 0:
            return prefix, python
    pytest.fail(f"no {version} that nobody may run, such as Debian's package {version}")

"""Lives of an instance: marks that are unique among what lives, and what earlier ones left."""

from __future__ import annotations

from pathlib import Path

from gymmesh_sandbox.earlier import Life


def _begun(folder: Path, instance_id: str = "boxes-0") -> Life:
    life = Life(instance_id, str(folder))
    life.begin()
    return life


def test_two_lives_of_one_instance_id_have_marks_of_their_own(tmp_path: Path) -> None:
    first, second = _begun(tmp_path), _begun(tmp_path)
    assert first.mark == "boxes-0"
    assert second.mark not in ("", "boxes-0")
    assert second.left == [second.mark]  # the first one lives
    assert _begun(tmp_path, "boxes-1").mark == "boxes-1"


def test_a_later_life_knows_the_marks_of_those_that_are_gone(tmp_path: Path) -> None:
    first, second = _begun(tmp_path), _begun(tmp_path)
    kept = Path(first.folder) / "archive"
    kept.touch()
    marks = [first.mark, second.mark]
    for life in (first, second):
        life.end()
        life.end()
    third = _begun(tmp_path)
    assert third.mark == "boxes-0"
    assert third.left == marks
    assert list(Path(third.folder).iterdir()) == []


def test_a_killed_life_leaves_its_lock_free(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = f"""
import os, signal
from gymmesh_sandbox.earlier import Life
life = Life("boxes-0", {str(tmp_path)!r})
life.begin()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    assert _begun(tmp_path).mark == "boxes-0"

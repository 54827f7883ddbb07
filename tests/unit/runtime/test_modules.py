"""A file that people name runs as it is now."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from gymmesh_runtime.config import file_spec


def number_of(file: Path) -> object:
    spec = file_spec("a file", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)["NUMBER"]


def test_an_edit_of_the_same_size_within_a_second_counts(tmp_path: Path) -> None:
    file = tmp_path / "environment.py"
    file.write_text("NUMBER = 1\n")
    before = file.stat()
    assert number_of(file) == 1
    file.write_text("NUMBER = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert number_of(file) == 2


def test_there_is_none_for_a_file_that_is_missing(tmp_path: Path) -> None:
    assert file_spec("a file", tmp_path / "none.py") is None

"""A sandbox's files are removed, whatever a program has made of them."""

from __future__ import annotations

import os
from pathlib import Path

from gymmesh_sandbox.backends.bubblewrap.roots import remove_tree


def test_folders_in_folders_until_no_path_names_the_last(tmp_path: Path) -> None:
    folder = tmp_path / "upper"
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(folder)
    assert not folder.exists()


def test_names_modes_and_kinds_of_all_sorts(tmp_path: Path) -> None:
    folder, other = tmp_path / "upper", tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("kept")
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "file").write_text("x")
    (folder / "link").symlink_to(other)
    (folder / "closed" / "inner" / "link").symlink_to(other)
    os.mkfifo(folder / "pipe")
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b".removed-0", b"x" * 255):
        os.mkdir(os.fsencode(folder) + b"/" + name)
    (folder / "closed" / "inner").chmod(0)
    (folder / "closed").chmod(0)
    folder.chmod(0)
    remove_tree(folder)
    assert not folder.exists()
    assert (other / "kept").read_text() == "kept"
    remove_tree(folder)  # there is nothing to remove

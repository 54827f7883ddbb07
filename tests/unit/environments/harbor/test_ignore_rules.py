"""What .harborignore leaves out, as Git's rules have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymmesh_resource.environments.harbor.ignore_rules import files_of
from gymmesh_resource.environments.harbor.task import TaskRefused
from gymmesh_resource.environments.harbor.task_toml import read_harbor
from tests.unit.environments.harbor.made_tasks import harbor_task, stepped_task, write_tasks


def test_rules_hold_below_their_folder_and_deeper_ones_win(tmp_path: Path) -> None:
    files = {
        ".harborignore": "*.log\n!keep.log\nout/\n",
        "a.log": "", "keep.log": "", "out/x": "", "out/.harborignore": "!x\n",
        "deep/.harborignore": "!b.log\n/only\n", "deep/b.log": "", "deep/c.log": "",
        "deep/only": "", "only": "",
    }  # fmt: skip
    write_tasks(tmp_path, {"tests": files})
    (tmp_path / "tests/link").symlink_to("a.log")
    assert files_of(tmp_path, "tests").without == {
        ".harborignore", "a.log", "link", "out",
        "deep/.harborignore", "deep/c.log", "deep/only",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("place", "text", "said"),
    [
        ("tests/.harborignore", "test.sh\n", r"tests/test\.sh: is excluded by \.harborignore"),
        ("solution/.harborignore", "*.sh\n", r"solution/solve\.sh: is excluded"),
        ("tests/.harborignore", "a\\\n", r"tests/\.harborignore: Invalid git pattern"),
    ],
)
def test_a_script_that_is_left_out_is_refused(
    tmp_path: Path, place: str, text: str, said: str
) -> None:
    write_tasks(tmp_path, {"one": harbor_task(**{place: text})})
    with pytest.raises(TaskRefused, match=said):
        read_harbor(tmp_path / "one")


def test_the_rules_of_a_step_are_its_own(tmp_path: Path) -> None:
    more = {"steps/one/tests/.harborignore": "*.md\n", "steps/one/tests/a.md": "", "tests/a.md": ""}
    write_tasks(tmp_path, {"one": stepped_task({"one": "", "two": ""}, **more)})
    first, _ = read_harbor(tmp_path / "one").steps
    assert [files.without for files in first.tests.folders] == [
        frozenset(),
        {".harborignore", "a.md"},
    ]

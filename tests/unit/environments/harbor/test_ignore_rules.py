"""What .harborignore leaves out, as Git's rules have it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from gymmesh_resource.environments.harbor.ignore_rules import files_of, rules_of
from gymmesh_resource.environments.harbor.task import TaskRefused
from gymmesh_resource.environments.harbor.task_toml import read_harbor
from tests.unit.environments.harbor.made_tasks import harbor_task, stepped_task, write_tasks

PATTERNS = (
    *("a", "*.log", "/a", "a/", "a/b", "**/b", "a/**", "a/**/c", "**", "a*", "?", "[ab]", "[!a]"),
    *("[a-c].log", "!a", "# a", r"\#a", r"\!a", "a ", r"a\ ", "", "/", "b/c", "*/c", "a//", "**a"),
    *("[]a]", "[", "*b*", "a/*", "/*.log", "**/", "/**", "c/", r"[\]a]", "a.b", "(a)"),
)
PATHS = (
    *("a", "b", "c", "a/b", "a/b/c", "b/c", "b/a", "x.log", "a/x.log", "#a", "!a", "a ", "]", "["),
    *("b/a/c", "a.b", "axb", "(a)", "ab", "ba", "a/a"),
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_it_means_to_git(pattern: str) -> None:
    theirs = GitIgnoreSpec.from_lines([pattern])
    ours = rules_of(pattern)
    for path in PATHS:
        for is_folder in (False, True):
            # Theirs say of a path that a folder above it matches, too; here that is asked before.
            parts = path.split("/")
            found = [
                not rule.stays
                for end in range(1, len(parts) + 1)
                for rule in ours
                if rule.matches("/".join(parts[:end]), is_folder=is_folder or end < len(parts))
            ]
            said = theirs.check_file(path + "/" * is_folder).include
            assert (found[-1] if found else None) == said, (pattern, path, is_folder)


@pytest.mark.parametrize("pattern", ["!", "\\", "a\\"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="which"):
        rules_of(pattern)


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
        ("tests/.harborignore", "test.sh\n", r"tests/test\.sh: is left out by \.harborignore"),
        ("solution/.harborignore", "*.sh\n", r"solution/solve\.sh: is left out"),
        ("tests/.harborignore", "a\\\n", r"tests/\.harborignore: has .*ends with a backslash"),
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

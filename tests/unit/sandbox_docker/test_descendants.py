"""Which processes descend from one: the decision, without a container."""

from __future__ import annotations

import pytest

from gymmesh_sandbox.backends.image_shell.descendants import Seen, descendants, read_processes

TARGET, OTHER = 10, 20


def seen(pid: int, parent: int, *, session: int = TARGET, started: int = 5) -> Seen:
    """A process that sleeps."""
    return Seen(pid, "S", parent, session, started)


FIRST = Seen(1, "S", 0, 1, 0)
PROCESS = seen(TARGET, 0)
BESIDE = seen(OTHER, 0, session=OTHER, started=6)


@pytest.mark.parametrize(
    ("more", "sure", "unsure"),
    [
        ([seen(11, TARGET), seen(12, 11)], {11, 12}, set()),
        # Its parent has ended, its session says whose it is.
        ([seen(11, 1), seen(12, 11, session=12)], {11, 12}, set()),
        # It left its session: it may be of either.
        ([seen(11, 1, session=11), seen(12, 11, session=11)], set(), {11, 12}),
        # Older than the process.
        ([seen(11, 1, session=11, started=4)], set(), set()),
        # In the session of another, ended or not.
        ([seen(21, 1, session=OTHER), seen(31, 1, session=30)], set(), set()),
        # What the first process has started itself.
        ([seen(2, 1, session=1)], set(), set()),
        # A loop of parents, as a list that is read in pieces may show.
        ([seen(11, 12), seen(12, 11)], set(), set()),
    ],
)
def test_descendants(more: list[Seen], sure: set[int], unsure: set[int]) -> None:
    found = descendants([FIRST, PROCESS, BESIDE, *more], TARGET, 5, [OTHER, 30])
    assert found == (sure | {TARGET}, unsure)


def test_lines_that_are_not_whole_are_skipped() -> None:
    lines = b"10 S 0 10 5\n11 Z 10 10 7\n12  \nx y\n13 S 1 13\n14 R 1 14 a\n"
    assert read_processes(lines) == [Seen(10, "S", 0, 10, 5), Seen(11, "Z", 10, 10, 7)]
    assert [one.ended for one in read_processes(lines)] == [False, True]

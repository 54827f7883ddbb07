"""What a shell in a sandbox runs, run by this machine's own."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_sandbox.backends.image_shell import launch
from gymmesh_sandbox.backends.image_shell.end_mark import EndMark

WORD = b"0123456789abcdef"


def run(script: bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    text = launch.boot_line(script) + stdin
    return subprocess.run(launch.BOOT, input=text, capture_output=True, check=False)


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=1, max_size=60).map(lambda one: one.replace(b"\0", b"")))
def test_any_bytes_arrive(word: bytes) -> None:
    argv = ("printf", "%s|", word.decode("utf-8", "surrogateescape"), "end")
    assert run(launch.own_program(argv)).stdout == word + b"|end|"


def supervised(*argv: bytes, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """The exit code, standard output behind the two numbers, and standard error."""
    script = launch.supervised(WORD, b"/", (0, 0, 0, 0), {"A": "it's\n\\0101"}, argv)
    done = run(script, stdin)
    mark = EndMark(WORD)
    said = mark.take(done.stderr)
    tree, alone, rest = done.stdout.split(b"\n", 2)
    assert tree.isdigit()
    assert alone.isdigit()
    assert tree != alone
    assert mark.numbers is not None
    return mark.numbers[0], rest, said


def test_a_process_says_how_it_ended() -> None:
    assert supervised(b"sh", b"-c", b'printf %s "$A"; cat; exit 7', stdin=b"in\n") == (
        7,
        b"it's\n\\0101in\n",
        b"",
    )
    assert supervised(b"sh", b"-c", b"echo a >&2; kill -9 $$") == (137, b"", b"a\n")
    # Of signals those that no shell or nohup has a job ignore: what is ignored stays so.
    for number in (10, 14, 15):
        assert supervised(b"sh", b"-c", b"kill -%d $$" % number)[0] == 128 + number
    assert supervised(os.fsencode("no-such-program"))[0] == 127
    assert supervised(b"/tmp")[0] == 126


@pytest.mark.parametrize("number", [1, 2, 3, 10, 14, 15])
def test_the_shell_above_outlives_what_can_be_caught(number: int) -> None:
    assert supervised(b"sh", b"-c", b"kill -%d $PPID; sleep 0.05; exit 6" % number)[0] == 6

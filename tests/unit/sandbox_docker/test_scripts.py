"""The scripts for containers, run by this machine's own shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gymmesh.sandbox.v1 import files_pb2
from gymmesh_sandbox.backends.image_shell import scripts
from gymmesh_sandbox.backends.image_shell.descendants import Seen, read_processes
from gymmesh_sandbox.backends.image_shell.files import read_listing

OWNER = f"{os.getuid()}:{os.getgid()}".encode()


def run(script: str, *arguments: bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs a script as a container would."""
    argv = scripts.command(script, arguments)
    return subprocess.run(argv, input=stdin, capture_output=True, check=False)


@pytest.mark.parametrize("word", [b"", b"a b", b"\n", b"a\n\n", b"\xff\xfe", b"%s\\n\\0101", b"-n"])
@pytest.mark.parametrize("beside", [b"plain", b"\x80"])
def test_words_arrive_as_they_are(word: bytes, beside: bytes) -> None:
    done = run('printf "%s|" "$@"', word, beside, word)
    assert done.stdout == b"|".join((word, beside, word, b""))
    quoted = b"printf %s " + scripts.quoted(word)
    assert subprocess.run(["/bin/sh", "-c", quoted], capture_output=True).stdout == word


def test_start_says_its_number_and_becomes_the_program(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"input")
    place, standard = os.fsencode(tmp_path), os.fsencode(tmp_path / "in")
    done = run(scripts.START, standard, place, *[b"0"] * 4, b"sh", b"-c", b"echo $$; pwd; cat")
    first, second, folder, rest = done.stdout.split(b"\n", 3)
    assert first == second
    assert (folder, rest) == (place, b"input")
    bounds = (b"7", b"2", b"900000", b"50")
    limits = [
        run(scripts.START, standard, place, *bounds, b"sh", b"-c", b"ulimit " + one)
        for one in (b"-t", b"-f", b"-v", b"-n")
    ]
    assert [one.stdout.split()[1] for one in limits] == list(bounds)
    nowhere = run(scripts.START, standard, place + b"/none", *[b"0"] * 4, b"true")
    assert nowhere.returncode == 126
    assert nowhere.stderr
    assert run(scripts.START, standard, place, *[b"0"] * 4, b"no-such").returncode == 127
    assert run(scripts.START, standard, place, *[b"0"] * 4, place).returncode == 126


def test_files_are_written_at_once_or_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "a\n"
    name = os.fsencode(path)
    done = run(scripts.WRITE_FILE, name, OWNER, b"640", b"", b"word", stdin=b"0123")
    assert (done.returncode, path.read_bytes(), path.stat().st_mode & 0o777) == (0, b"0123", 0o640)
    assert [one.name for one in path.parent.iterdir()] == ["a\n"]
    for _ in range(2):
        assert not run(scripts.WRITE_FILE, name, OWNER, b"600", b"2", b"w", stdin=b"ab").returncode
        assert path.read_bytes() == b"01ab"
    assert run(scripts.WRITE_FILE, name, OWNER, b"600", b"5", b"w").returncode == scripts.BEYOND_END
    above = os.fsencode(path.parent)
    for wrong in (above, name + b"/below"):
        done = run(scripts.WRITE_FILE, wrong, OWNER, b"600", b"", b"w", stdin=b"x" * 200_000)
        assert done.returncode == scripts.NOT_VALID
    if Path("/dev/full").exists():
        done = run(scripts.WRITE_FILE, b"/dev/full", OWNER, b"600", b"0", b"w", stdin=b"x")
        assert done.returncode == scripts.NOT_VALID


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"kept")
    link = tmp_path / "link"
    for offset in (b"", b"0"):
        link.unlink(missing_ok=True)
        link.symlink_to("target")
        done = run(scripts.WRITE_FILE, os.fsencode(link), OWNER, b"600", offset, b"w", stdin=b"n")
        assert done.returncode == 0
        assert not link.is_symlink()
        assert link.read_bytes() == b"n"
    assert (tmp_path / "target").read_bytes() == b"kept"


def test_a_file_is_read_from_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    name = os.fsencode(path)
    assert run(scripts.READ_FILE, name, b"1", b"").stdout == b"0123456789"
    assert run(scripts.READ_FILE, name, b"4", b"3").stdout == b"345"
    assert run(scripts.READ_FILE, name, b"99", b"").stdout == b""
    assert run(scripts.READ_FILE, os.fsencode(tmp_path), b"1", b"").returncode == scripts.NOT_VALID
    assert run(scripts.READ_FILE, name + b"x", b"1", b"").returncode == scripts.NOT_FOUND


def test_a_list_holds_any_names(tmp_path: Path) -> None:
    names = [b"a\nword I 0", b"\xff", b" ", b"-n"]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(b"x" * 3)
    (tmp_path / "link").symlink_to(b"to\n\xfe\n".decode("utf-8", "surrogateescape"))
    (tmp_path / "folder").mkdir(mode=0o750)
    (tmp_path / "folder" / "below").touch()
    place = os.fsencode(tmp_path)
    said = run(scripts.LIST_FILES, place, b"hard", b"-maxdepth 1", b"").stdout
    found = {one.path: one for one in read_listing(said, b"hard")}
    assert list(found) == sorted(place + b"/" + one for one in [*names, b"folder", b"link"])
    assert found[place + b"/link"].link_target == b"to\n\xfe\n"
    assert found[place + b"/ "].size == 3
    folder = found[place + b"/folder"]
    assert (folder.kind, folder.mode) == (files_pb2.FILE_KIND_FOLDER, 0o750)
    assert folder.modified_unix_nano == (tmp_path / "folder").stat().st_mtime_ns
    deep = read_listing(run(scripts.LIST_FILES, place, b"hard", b"", b"").stdout, b"hard")
    assert place + b"/folder/below" in [one.path for one in deep]
    itself = run(scripts.LIST_FILES, place + b"/link", b"hard", b"", b"x").stdout
    assert [one.kind for one in read_listing(itself, b"hard")] == [files_pb2.FILE_KIND_LINK]
    assert run(scripts.LIST_FILES, place + b"/none", b"w", b"", b"").returncode == scripts.NOT_FOUND


def test_paths_are_followed_as_far_as_they_lead(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    place = os.fsencode(tmp_path.resolve())
    for path, expected in (
        (place + b"/link/b\n/c", place + b"/a/b\n/c"),
        (place + b"/link", place + b"/a"),
        (b"/", b"/"),
        (b"/no-such-folder", b"/no-such-folder"),
    ):
        assert run(scripts.REAL + 'real "$1"; printf %s "$found"', path).stdout == expected


def test_processes_are_listed_with_builtins_alone() -> None:
    # No program is found: whatever the script starts fails.
    done = subprocess.run(
        ["/bin/sh", "-c", scripts.LIST_PROCESSES + scripts.READ_MARK + "mark $$ OWN= MARK="],
        env={"PATH": "/nonexistent", "MARK": "other"},
        capture_output=True,
        check=False,
    )
    lines, _, pid = done.stdout.strip().rpartition(b"\n")
    own = [one for one in read_processes(lines) if one.pid == os.getpid()]
    assert own[0].parent == os.getppid()
    assert own[0].session == os.getsid(0)
    assert pid.isdigit()
    assert not done.stderr


def test_a_process_and_what_descends_from_it_are_stopped() -> None:
    line = "sleep 600 & (sleep 600 &); echo $$; wait"
    process = subprocess.Popen(
        ["/bin/sh", "-c", line], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        started = next(one.started for one in _processes() if one.pid == pid)
        halt = f"{scripts.STOP_DESCENDANTS}halt {pid} {started}"
        assert subprocess.run(["/bin/sh", "-c", halt], check=False).returncode == 0
        related = [one for one in _processes() if pid in (one.pid, one.parent, one.session)]
        # One of the two that sleep has no parent left: its session says whose it is.
        assert len(related) == 3
        assert {one.state for one in related} == {"T"}
        own = next(one for one in _processes() if one.pid == os.getpid())
        assert own.state != "T"
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def _processes() -> list[Seen]:
    return read_processes(run(scripts.LIST_PROCESSES).stdout)

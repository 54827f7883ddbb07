"""The text that a shell in a sandbox runs. Pure.

The script is sent on standard input and not as arguments, which others may write to their logs. The
start of a program defines only its command. The script sets the folder and the variables, and
reports the process's number and its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gymmesh_sandbox.backends.image_shell.scripts import BECOME, COUNT_OOM, call, quoted

#: Runs the line that it reads, and leaves what follows on standard input to it.
BOOT: Final = ("/bin/sh", "-c", r'IFS= read -r line && eval "$(printf %b "$line")"')

#: Neither the image nor the sandbox chooses what the service's own programs print.
OWN_ENVIRONMENT: Final = b"export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin\n"
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {ord("\\")}

# The process is the shell's child: its own signals are the defaults, and those that go to all of
# its descendants end the shell only where they cannot be caught.
_SUPERVISE: Final = b"""exec 4>&2 2>/dev/null
count() { :
%(count)s
}
before=$(count)
echo $$
trap : HUP INT QUIT USR1 USR2 ALRM TERM
(
%(variables)s
exec %(command)s) 2>&4 4>&-
code=$?
after=$(count)
echo "%(word)s $code ${before:-0} ${after:-0}" >&4
"""


def boot_line(script: bytes) -> bytes:
    """The line from which BOOT runs a script."""
    return (
        b"".join(bytes((byte,)) if byte in _PLAIN else b"\\0%03o" % byte for byte in script) + b"\n"
    )


def own_program(argv: Sequence[str]) -> bytes:
    """The script that becomes one of the service's own programs."""
    words = b" ".join(quoted(one.encode("utf-8", "surrogateescape")) for one in argv)
    return OWN_ENVIRONMENT + b"exec " + words


def supervised(
    word: bytes,
    folder: bytes,
    limits: Sequence[int],
    variables: Mapping[str, str],
    argv: Sequence[bytes],
) -> bytes:
    """The script that starts a process and reports how it ended.

    It first writes two lines to standard output: its own number and the process's number. The last
    line on standard error is the line of `EndMark`.

    Args:
        word: the beginning of the last line.
        limits: as in BECOME.
        variables: each name must be one that a shell can export.
    """
    exports = b"".join(
        call(b"export", (f"{name}={value}".encode(),)) for name, value in variables.items()
    )
    words = (
        b"/bin/sh", b"-c", BECOME.encode(), b"sh",
        folder, *(b"%d" % one for one in limits), *argv,
    )  # fmt: skip
    return _SUPERVISE % {
        b"count": COUNT_OOM.encode(),
        b"variables": exports,
        b"command": b" ".join(map(quoted, words)),
        b"word": word,
    }

"""All output of gym-cli passes through this module. The output has no terminal control sequences
except our own colours.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable
from typing import Any, BinaryIO, Final

import click

from gymmesh_runtime.text import laid_out, one_line, plain_json, shortened

_LONGEST_LINE: Final = 4000

Parts = tuple[tuple[str, dict[str, Any]], ...]


def echo(text: str = "", *, err: bool = False) -> None:
    """Write text whose newlines and tabs we laid out; what others wrote has gone through
    `one_line` where a newline in it would matter.
    """
    click.echo(laid_out(text), err=err)


def echo_parts(*parts: tuple[str, dict[str, Any]], end: str = "\n") -> None:
    """Write pieces of text, each with its style: arguments of `click.style`."""
    click.echo(_styled(parts) + end, nl=False)


def page_parts(lines: Iterable[Parts]) -> None:
    """Show lines, each of pieces as for `echo_parts`, in the user's pager."""
    click.echo_via_pager("".join(f"{_styled(parts)}\n" for parts in lines))


def _styled(parts: Parts) -> str:
    return "".join(click.style(laid_out(text), **style) for text, style in parts)


def report(as_json: bool, document: Any, lines: Iterable[str]) -> None:
    """Write a command's report: as a JSON document, or as lines. No text in a line can start a new
    line.
    """
    if as_json:
        echo_json(document)
        return
    for line in lines:
        echo(shortened(one_line(line), _LONGEST_LINE))


class ProgramOutput:
    """Passes on a program's output as it arrives: unchanged bytes, but no control sequences to a
    terminal.
    """

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders: dict[str, codecs.IncrementalDecoder] = {
            "stdout": make("replace"),
            "stderr": make("replace"),
        }

    def write(self, stream: str, data: bytes) -> None:
        """Writes a piece to the stream of this name."""
        file: BinaryIO = (sys.stderr if stream == "stderr" else sys.stdout).buffer
        if file.isatty():
            self._show(stream, self._decoders[stream].decode(data))
        else:
            file.write(data)
            file.flush()

    def close(self) -> None:
        """Writes the rest of characters that were split between pieces."""
        for stream, decoder in self._decoders.items():
            self._show(stream, decoder.decode(b"", final=True))

    def _show(self, stream: str, text: str) -> None:
        if text:
            click.echo(laid_out(text), nl=False, err=stream == "stderr")


def echo_json(value: Any) -> None:
    """Write a value as a line of JSON."""
    echo_json_line(json.dumps(value))


def echo_json_line(line: str | bytes) -> None:
    """Write a line that is already JSON; its meaning does not change."""
    text = line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line
    click.echo(plain_json(text.strip()))

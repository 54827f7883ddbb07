"""The documentation as data: pages, their code blocks, and what each block is to be checked for.

A comment straight above a block says more than its language does:

    <!-- check: file NAME -->       saved under NAME in the page's folder before anything runs
    <!-- check: write NAME -->      likewise, but when its turn comes among the commands; Python in
                                    such a file runs by a command alone
    <!-- check: run exit N -->      its gym-cli and python commands are run and end with N; what is
                                    shown below the last one is what it says, fractions and ids of
                                    rollouts aside
    <!-- check: row FILE -->        a row of FILE, as the page's commands wrote it
    <!-- check: part KEY of FILE -->  what stands under KEY in a row of FILE
    <!-- check: recording -->       JSON lines for the replay backend, not task rows
    <!-- check: data -->            JSON lines that a command imports, not task rows
    <!-- check: skip -->            YAML that is wrong on purpose, or somebody else's; Python that
                                    another test runs

and `<!-- check: hidden NAME`, lines, `-->` is a file that readers need not see; one called
answers.jsonl is the recording that the page's commands get their answers from. Of one page, first
all files are written, then its commands run, then its Python, in one namespace, in the order of
the page, with the repository's `examples` at hand. Of Python that awaits at the top level, which
is a part of something, only the imports run.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from gymmesh.errors.v1 import errors_pb2
from gymmesh_agent.failures import FailureStage, StepFailed, failure_of
from gymmesh_cli.main import cli
from gymmesh_runtime.errors import CODE_OF_REASON, RULES, MeshError

ROOT: Final = Path(__file__).resolve().parents[2]
ANSWERS: Final = "answers.jsonl"

_FENCE: Final = re.compile(r"```(\w*)$")
_CHECK: Final = re.compile(r"<!-- check: (.*?) -->$")
_HIDDEN: Final = re.compile(r"<!-- check: hidden (\S+)$")
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """One code block: its language, text, first line in the page, and its check's words."""

    language: str
    text: str
    line: int
    check: tuple[str, ...] = ()

    def after(self, word: str) -> str:
        """The word that follows `word` in the check; empty without it."""
        words = iter(self.check)
        return next(words, "") if word in words else ""

    def commands(self) -> list[list[str]]:
        """The command lines after `$`, split as a shell does; a backslash continues a line."""
        joined = self.text.replace("\\\n", " ")
        lines = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
        return [shlex.split(line, comments=True) for line in lines]

    def shown(self) -> list[str]:
        """The lines below the last command: what it says."""
        lines = self.text.replace("\\\n", " ").splitlines()
        last = max((at for at, line in enumerate(lines) if line.startswith("$ ")), default=-1)
        return [line.rstrip() for line in lines[last + 1 :] if line.strip()]


@dataclass(slots=True)
class Page:
    """One page."""

    path: Path
    text: str
    blocks: list[Block] = field(default_factory=list)
    hidden: dict[str, str] = field(default_factory=dict)

    def of(self, *languages: str) -> list[Block]:
        """The blocks of these languages."""
        return [block for block in self.blocks if block.language in languages]

    def files(self) -> dict[str, str]:
        """The files that the page's commands and Python need, by name."""
        shown = {block.after("file"): block.text for block in self.blocks if "file" in block.check}
        return shown | self.hidden

    def python(self) -> str:
        """All Python of the page as one script."""
        others = {"skip", "write"}
        shown = [block for block in self.of("python") if not others & {*block.check}]
        return "\n".join(map(_script, shown))

    def links(self) -> list[str]:
        """The targets of all links and pictures outside code."""
        return _LINK.findall(re.sub(r"```.*?```|`[^`]*`", "", self.text, flags=re.DOTALL))

    def anchors(self) -> set[str]:
        """The anchors of the page's headings."""
        heads = re.findall(r"^#+ (.+)$", self.text, flags=re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}

    def options(self) -> set[str]:
        """Every `--option` in console blocks and in code within the text."""
        prose = re.sub(r"```.*?```", "", self.text, flags=re.DOTALL)
        code = re.findall(r"`([^`]*)`", prose) + [block.text for block in self.of("console")]
        return {option for part in code for option in _OPTION.findall(part)}


def pages() -> list[Page]:
    """README, changelog and everything in docs/."""
    paths = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [read_page(path) for path in paths]


def read_page(path: Path) -> Page:
    """Read a page.

    Raises:
        ValueError: a fence or hidden file that doesn't end, or a check that is above no block.
    """
    page = Page(path, path.read_text(encoding="utf-8"))
    lines = enumerate(page.text.splitlines(), start=1)
    check: tuple[str, ...] = ()
    for number, line in lines:
        if hidden := _HIDDEN.match(line):
            page.hidden[hidden[1]] = _until("-->", lines, path)
        elif found := _CHECK.match(line):
            check = tuple(found[1].split())
        elif fence := _FENCE.match(line):
            page.blocks.append(Block(fence[1], _until("```", lines, path), number, check))
            check = ()
        elif check:
            raise ValueError(f"{path}:{number}: a check must stand straight above a code block")
    return page


def _until(end: str, lines: Iterator[tuple[int, str]], path: Path) -> str:
    taken: list[str] = []
    for _, line in lines:
        if line == end:
            return "".join(f"{one}\n" for one in taken)
        taken.append(line)
    raise ValueError(f"{path}: a block does not end")


def _script(block: Block) -> str:
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(block.text, f"line {block.line}", "exec", flags)
    try:
        compile(block.text, f"line {block.line}", "exec")
    except SyntaxError:
        kept = [part for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
        return "\n".join(ast.unparse(part) for part in kept)
    return block.text


def parse_command(arguments: list[str]) -> None:
    """Parse a gym-cli command line as click does, without running it.

    Raises:
        click.UsageError: no such command or option, or one that is missing.
    """
    command: click.Command = cli
    context = cli.make_context("gym-cli", list(arguments))
    while isinstance(command, click.Group):
        # The name of a group's command; the public attribute warns.
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, found, rest = command.resolve_command(context, rest)
        if found is None:
            raise click.UsageError(f"no such command: {name}")
        command = found
        context = command.make_context(name, rest, parent=context)


def cli_options(command: click.Command = cli) -> set[str]:
    """Every long option of gym-cli and of all commands below it."""
    found = {"--help"}
    for parameter in command.params:
        options = (*parameter.opts, *parameter.secondary_opts)
        found.update(option for option in options if option.startswith("--"))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None
            found |= cli_options(one)
    return found


def reason_table() -> str:
    """The table of docs/reference/errors.md, made from errors.proto, the codes and the agent's
    rules.
    """
    proto = (ROOT / "proto/gymmesh/errors/v1/errors.proto").read_text(encoding="utf-8")
    rows = ["| reason | code | meaning | can a retry succeed |", "|---|---|---|---|"]
    for comment, name in re.findall(r"((?:  //[^\n]*\n)+)  ERROR_REASON_(\w+) = \d+", proto):
        if name == "UNSPECIFIED":
            continue
        words = " ".join(line.strip(" /") for line in comment.splitlines())
        code, _, meaning = words.partition(". ")
        # Its first sentence; the rest is for those who implement the contract.
        meaning = re.split(r"(?<=\.) ", meaning, maxsplit=1)[0]
        reason = errors_pb2.ErrorReason.Value(f"ERROR_REASON_{name}")
        if CODE_OF_REASON[reason].name != code:
            raise ValueError(f"{name}: errors.proto says {code}")
        again = "yes" if _may_succeed(reason) else "no"
        if RULES[reason].repeats:
            again = "after a fix"
        rows.append(f"| `{name}` | {code} | {meaning} | {again} |")
    return "\n".join(rows)


def _may_succeed(reason: errors_pb2.ErrorReason.ValueType) -> bool:
    step = StepFailed(MeshError(reason, "it failed"), FailureStage.TOOL, "tool")
    return failure_of(step, environment_retry_safe=True).retry_safe

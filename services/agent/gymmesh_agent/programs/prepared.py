"""A program prepared for one rollout: its command, variables and files, with all placeholders
filled in.

Pure. Known names in braces are replaced. Everything else is unchanged, so JSON needs no escaping.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Final

from gymmesh_agent.programs.known_programs import KnownProgram, find_program
from gymmesh_agent.programs.options import ProgramOptions
from gymmesh_responses import dumps

_RUNNER: Final = "{home}/run_function.py"


@dataclass(frozen=True, slots=True)
class ProgramPlace:
    """A rollout's values for its program.

    url, key: the gateway's, as the program reaches it. prompt: the task. home: the program's own
    folder. path: the PATH of the sandbox.
    """

    url: str
    key: str
    prompt: str
    workdir: str
    home: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class PreparedProgram:
    """What to run: a program and its arguments, or a line for the shell; its variables, its
    files by path, folders to create, and its standard input.
    """

    command: Sequence[str] | str
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    stdin: bytes = b""


def prepared(options: ProgramOptions, place: ProgramPlace, *, tools: bool) -> PreparedProgram:
    """The program of these options at this place; `tools`: with the environment's tools over
    MCP.
    """
    names = {
        "url": place.url,
        "key": place.key,
        "model": options.model,
        "prompt": place.prompt,
        "workdir": place.workdir,
        "home": place.home,
    }
    if options.program:
        return _known(find_program(options.program), options, place, names, tools=tools)
    env = {**usual_env(place, options.model), **options.env}
    if options.function:
        runner = (resources.files(__package__) / "run_function.py").read_text("utf-8")
        given = {"prompt": place.prompt, "url": place.url, "key": place.key,
                 "model": options.model, "workdir": place.workdir}  # fmt: skip
        return PreparedProgram(
            command=["python3", filled(_RUNNER, names), options.function],
            env=_filled(env, place, options, names),
            files=_files({_RUNNER: runner} | options.files, names),
            stdin=dumps(given),
        )
    if isinstance(options.command, str):
        quoted = {name: shlex.quote(value) for name, value in names.items()}
        command: Sequence[str] | str = filled(options.command, quoted)
    else:
        command = [filled(word, names) for word in options.command]
    return PreparedProgram(
        command=command,
        env=_filled(env, place, options, names),
        files=_files(options.files, names),
        stdin=b"",
    )


def _known(
    program: KnownProgram,
    options: ProgramOptions,
    place: ProgramPlace,
    names: Mapping[str, str],
    *,
    tools: bool,
) -> PreparedProgram:
    run, mcp = program.run, program.mcp if tools else None
    words = [*run.command, *(mcp.arguments if mcp else ()), *options.arguments]
    files = run.files | (mcp.files if mcp else {}) | options.files
    return PreparedProgram(
        command=[filled(word, names) for word in words],
        env=_filled({**run.env, **options.env}, place, options, names),
        files=_files(files, names),
        folders=[filled(folder, names) for folder in run.folders],
    )


def usual_env(place: ProgramPlace, model: str) -> dict[str, str]:
    """The variables by which libraries find the gateway, for a program that is not known."""
    return {
        "OPENAI_BASE_URL": f"{place.url}/v1",
        "OPENAI_API_BASE": f"{place.url}/v1",
        "OPENAI_API_KEY": place.key,
        "OPENAI_MODEL": model,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": place.key,
        "ANTHROPIC_MODEL": model,
        "GOOGLE_GEMINI_BASE_URL": place.url,
        "GEMINI_API_KEY": place.key,
        "GOOGLE_API_KEY": place.key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def filled(text: str, names: Mapping[str, str]) -> str:
    """The text with each `{name}` replaced once, so that a prompt that contains `{key}` reveals
    no key.
    """
    found, rest = [], text
    while rest:
        before, brace, rest = rest.partition("{")
        name, end, behind = rest.partition("}")
        if brace and end and name in names:
            found += [before, names[name]]
            rest = behind
        else:
            found += [before, brace]
    return "".join(found)


def _filled(
    env: Mapping[str, str], place: ProgramPlace, options: ProgramOptions, names: Mapping[str, str]
) -> dict[str, str]:
    """The variables, with the program's own home folder and folder for temporary files."""
    own = {"HOME": place.home, "TMPDIR": f"{place.home}/tmp"}
    if options.path:
        own["PATH"] = ":".join((*options.path, place.path or "/usr/local/bin:/usr/bin:/bin"))
    return own | {name: filled(value, names) for name, value in env.items()}


def _files(files: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {filled(path, names): filled(text, names) for path, text in files.items()}

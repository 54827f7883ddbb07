"""What is run for a rollout: options read, names filled in, files and variables."""

from __future__ import annotations

import json
import shlex
import tomllib
from typing import Any

import pytest

from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.programs import find_program, known_programs
from gymmesh_agent.programs.options import ProgramOptions, read_options
from gymmesh_agent.programs.output import OutputTail, log_name
from gymmesh_agent.programs.prepared import PreparedProgram, ProgramPlace, filled, prepared
from gymmesh_agent.programs.prompt import prompt_of
from gymmesh_responses import item_from_json, new_message
from gymmesh_runtime.errors import MeshError

KEY = "sk-gymmesh-0123456789abcdefghij"
URL = "http://127.0.0.1:8000"
PROMPT = 'Say "{key}" and {url}, then \\ stop.'
HOME = "/tmp/program-1"


def program(tools: bool = False, **options: Any) -> PreparedProgram:
    place = ProgramPlace(
        url=URL, key=KEY, prompt=PROMPT, workdir="/work", home=HOME, path="/usr/bin"
    )
    return prepared(ProgramOptions(**options), place, tools=tools)


@pytest.mark.parametrize("name", known_programs())
def test_a_known_program_is_complete(name: str) -> None:
    known = find_program(name)
    assert known.tried
    packages = [*known.install.npm, *known.install.pip]
    assert any(one.endswith(known.tried[-1]) for one in packages)
    made = program(program=name, model="policy")
    words = list(made.command)
    assert all(
        "{" + key + "}" not in " ".join(words).replace(PROMPT, "")
        for key in ("url", "key", "model", "home")
    )
    assert PROMPT in words
    assert KEY not in "".join(words)  # any process of the sandbox may read a command line
    assert any(KEY in value for value in made.env.values())
    assert made.env["HOME"] == HOME
    assert made.env["TMPDIR"].startswith(HOME)
    tools = program(program=name, tools=True)
    assert (known.mcp is None) == (tools == made)
    for path, text in {**made.files, **tools.files}.items():
        assert path.startswith(HOME)
        if path.endswith(".json"):
            json.loads(text)
    for value in made.env.values():
        if value.lstrip().startswith("{"):
            json.loads(value)


def test_codexs_arguments_are_toml() -> None:
    words = list(program(program="codex", tools=True).command)
    settings = [words[at + 1] for at, word in enumerate(words) if word == "-c"]
    for setting in settings:
        key, _, value = setting.partition("=")
        assert key
        if value != "gateway":  # it takes what is no TOML as a text
            tomllib.loads(f"value = {value}")


def test_names_are_filled_in_once_and_the_rest_stays() -> None:
    names = {"a": "{b}", "b": "2"}
    assert filled('{a} {b} {c} {"x": {b}} {', names) == '{b} 2 {c} {"x": 2} {'


def test_any_other_program_has_the_usual_variables_and_its_own() -> None:
    made = program(command="./agent --task {prompt}", env={"MODE": "{model}"}, path=["/opt/a"])
    assert shlex.split(str(made.command)) == ["./agent", "--task", PROMPT]
    assert made.env["OPENAI_BASE_URL"] == f"{URL}/v1"
    assert made.env["ANTHROPIC_BASE_URL"] == URL
    assert made.env["MODE"] == "policy"
    assert made.env["PATH"] == "/opt/a:/usr/bin"
    words = program(command=["agent", "{workdir}"], files={"{home}/.agent": "{url}"})
    assert words.command == ["agent", "/work"]
    assert words.files == {f"{HOME}/.agent": URL}


@pytest.mark.parametrize("target", ["my.agents:solve", "my agents/a-1.py:solve", "/opt/a.py:solve"])
def test_a_function_is_run_by_a_file_that_needs_nothing_of_ours(target: str) -> None:
    made = program(function=target)
    assert list(made.command) == ["python3", f"{HOME}/run_function.py", target]
    assert "gymmesh_" not in made.files[f"{HOME}/run_function.py"]
    assert json.loads(made.stdin) == {
        "prompt": PROMPT, "url": URL, "key": KEY, "model": "policy", "workdir": "/work"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "program: set exactly one of"),
        ({"program": "codex", "command": "x"}, "program: set exactly one of"),
        ({"program": "codexx"}, "no known program 'codexx'; did you mean"),
        ({"function": "solve"}, "function: must be package.module:name or folder/file.py:name"),
        ({"function": "my/agent:solve"}, "function: must be package.module:name"),
        ({"function": "my/.py:solve"}, "function: must be package.module:name"),
        ({"function": "my/agent.py"}, "function: must be package.module:name"),
        ({"function": "my/agent.py:"}, "function: must be package.module:name"),
        ({"command": "x", "in_process": True}, "in_process: works only with the option 'function'"),
        ({"command": "x", "arguments": ["y"]}, "arguments: works only with the option 'program'"),
        ({"command": "x", "model": 'a"b'}, "model: "),
        ({"command": "x", "env": {"A=B": ""}}, "env: "),
        ({"command": "x", "files": {"a": ""}}, "files: "),
        ({"command": "x", "files": {"{home}/../a": ""}}, "files: "),
        ({"command": "x", "path": ["bin"]}, "path: "),
        ({"command": "x", "timeout_s": 0}, "timeout_s: "),
        ({"command": "x", "timeout": 1}, "timeout: is not an option"),
        ({"command": "x", "side_calls": [{"last": "title"}]}, r"side_calls\[0\]: .*`kind`"),
        (
            {"command": "x", "side_calls": [{"kind": "title", "lst": "title"}]},
            r"side_calls\[0\]\.lst: is not a key of a side call",
        ),
        (
            {"command": "x", "side_calls": [{"kind": "title", "last": 3}]},
            r"side_calls\[0\]\.last: Expected `str`",
        ),
        (
            {"command": "x", "side_calls": [{"kind": "a", "last": "b"}, {"kind": "title"}]},
            r"side_calls\[1\]\.kind: the side call has no condition",
        ),
    ],
)
def test_options_that_cannot_be_meant_are_refused_by_their_key(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        read_options(options)


def test_the_prompt_is_the_texts_of_the_messages() -> None:
    items = [new_message("system", "Be brief."), new_message("user", "Repair it.")]
    assert prompt_of(items) == "Be brief.\n\nRepair it."


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "user", "content": "  "},
    ],
)
def test_what_is_no_text_is_no_prompt(item: dict[str, Any]) -> None:
    items: list[responses_pb2.Item] = [item_from_json(item)]
    with pytest.raises(MeshError) as refused:
        prompt_of(items)
    assert refused.value.reason_name == "TASK_INVALID"


def test_the_end_of_the_output_shows_no_key() -> None:
    tail = OutputTail(KEY, most=40)
    for piece in (b"x" * 100, KEY[:9].encode(), KEY[9:].encode(), b" and more"):
        tail.take("stdout", piece)
    assert tail.kept == b"x" * 28 + b"*** and more"


def test_a_log_has_a_safe_name_whatever_the_rollout_is_called() -> None:
    assert log_name("run/../t 1/2") == "run_.._t_1_2.log"
    assert "/" not in log_name("../" * 200)
    assert len(log_name("r" * 500)) < 255

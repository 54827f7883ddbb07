"""The command line's own parts: lazy commands, flags, progress, events."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import gymmesh_client
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_cli import main
from gymmesh_cli.collect.progress import Progress, progress_lines
from gymmesh_cli.collect.run_one import split_place
from gymmesh_cli.options.shared import MeshOptions
from gymmesh_cli.shared.session import MeshPlan
from gymmesh_cli.terminal.events import EventPrinter
from gymmesh_client import FailedAttempt, Figures, Tally
from gymmesh_runtime.errors import MeshError, to_status
from tests.support.rollouts import answer, completed, failed, make_events, make_task, verdict

HEAVY = (
    "aiohttp",
    "asyncio",
    "google.protobuf",
    "grpc",
    "gymmesh_agent",
    "gymmesh_client",
    "gymmesh_conformance",
    "gymmesh_mesh",
    "gymmesh_model",
    "gymmesh_resource",
    "jsonschema",
    "msgspec",
    "orjson",
    "prometheus_client",
    "yaml",
)
# Shows the help of every command in turn, and after each one the heavy modules that are loaded.
EVERY_HELP = """
import contextlib, io, json, sys
from gymmesh_cli.main import cli

def help_of(path):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        cli([*path, "--help"])
    loaded = [name for name in HEAVY if name in sys.modules]
    print(json.dumps({"path": path, "loaded": loaded, "help": shown.getvalue()}))

def walk(command, path):
    help_of(path)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            walk(command.get_command(None, name), [*path, name])

walk(cli, [])
"""


def test_the_help_of_no_command_imports_anything_heavy() -> None:
    code = f"HEAVY = {HEAVY!r}\n{EVERY_HELP}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    shown = {" ".join(one["path"]): one for one in map(json.loads, done.stdout.splitlines())}
    assert {"", "collect", "run", "runs pause", "env test", "data validate"} <= shown.keys()
    assert "Exit codes:" in shown[""]["help"]
    for name, one in shown.items():
        assert "Usage: " in one["help"], name
        assert one["loaded"] == [], f"gym-cli {name} --help"


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    context = click.Context(main.cli)
    for name, (_, text) in main._COMMANDS.items():
        command = main.cli.get_command(context, name)
        assert command is not None
        assert command.short_help == text


def test_a_mistyped_command_names_the_nearest() -> None:
    done = CliRunner().invoke(main.cli, ["colect"])
    assert done.exit_code == 2
    assert "no such command 'colect'; did you mean 'collect'?" in done.output


def test_version() -> None:
    assert CliRunner().invoke(main.cli, ["--version"]).output.startswith("gym-cli ")


@pytest.mark.parametrize("path", [["collect"], ["run"], ["up"], ["data", "validate"]])
def test_every_help_has_an_example(path: list[str]) -> None:
    done = CliRunner().invoke(main.cli, [*path, "--help"])
    assert done.exit_code == 0
    assert "gym-cli " + " ".join(path) in done.output


@given(name=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1))
def test_a_models_name_comes_through_as_it_is(name: str) -> None:
    options = MeshOptions(model_url="http://h/v1", model=name, model_api="responses")
    policy = options.load().models["policy"]
    assert (policy.backend, policy.url, policy.model) == ("responses", "http://h/v1", name)


def test_endpoints_and_credentials_are_no_part_of_a_runs_identity() -> None:
    def identity(*sets: str) -> object:
        base = ("models.policy.backend=chat", "models.policy.model=m")
        return MeshPlan.of(MeshOptions(sets=(*base, *sets)), ()).identity()

    one = identity("models.policy.url=http://a/v1", "models.policy.api_key=secret-a")
    assert "secret" not in repr(one)
    assert one == identity("models.policy.url=http://b/v1", "mesh.drain_s=3")
    assert one != identity("models.policy.url=http://a/v1", "models.policy.model=n")


def figures(tally: Tally, **changes: Any) -> Figures:
    usual: dict[str, Any] = {
        "state": "running",
        "why": "",
        "in_flight": 2,
        "queued": 0,
        "ending": 0,
        "retrying": 0,
        "width": 4,
        "concurrency": 4,
        "away": {},
        "groups": 0,
        "held": False,
        "rollouts_per_s": 0.5,
        "tokens_per_s": 20.0,
    }
    return Figures(tally=tally, **{**usual, **changes})


def test_progress_in_words() -> None:
    tally = Tally(completed=3)
    tally.rewards.update({1.0: 1, 0.0: 1})
    assert progress_lines(figures(tally), 10) == [
        "3/10  0.5 rollouts/s  20 tokens/s  mean reward 0.500  failed 0  0:00:14 left",
        "in flight 2 (at most 4)",
    ]
    assert "mean reward –" in progress_lines(figures(Tally()), 1)[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width": 2}, "at most 2 now, 4 requested"),
        ({"queued": 1, "ending": 3, "retrying": 5}, "queued at agents 1  being written 3"),
        ({"state": "paused"}, "paused; resume with: gym-cli runs resume"),
        (
            {"state": "draining", "why": "drained"},
            "draining (after gym-cli runs drain); Ctrl-C cancels the rollouts in flight after "
            "--grace seconds",
        ),
        (
            {"state": "draining", "why": "drained", "interrupted": True},
            "draining (after Ctrl-C); Ctrl-C again cancels the rollouts in flight at once",
        ),
        (
            {"state": "draining", "why": "the run reached its deadline of 5 s"},
            "draining (the run reached its deadline of 5 s); Ctrl-C cancels",
        ),
        ({"state": "draining", "why": "cancelled"}, "ending (after gym-cli runs cancel)"),
        ({"away": {"agent 'tool_loop'": ""}}, "waiting for agent 'tool_loop'"),
        ({"groups": 16, "held": True}, "no new groups: the trainer has not acknowledged"),
    ],
)
def test_what_stands_in_a_runs_way(changes: dict[str, Any], words: str) -> None:
    lines = progress_lines(figures(Tally(), **changes), 10)
    assert words in "  ".join(lines)
    assert ("left" in lines[0]) == (changes.get("state", "running") == "running")


def test_a_line_names_the_error_of_an_unreachable_service_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(10)
    away = figures(Tally(), away={"agent 'a'": "", "model 'policy'": "failed to connect (1)"})
    other = figures(Tally(), away={"model 'policy'": "a time-out"})
    for one in (away, away, other, other, figures(Tally()), other):
        progress._show(one)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("waiting for ")[2] for line in lines] == [
        "agent 'a', model 'policy' (failed to connect (1))",
        "agent 'a', model 'policy'",
        "model 'policy' (a time-out)",
        "model 'policy'",
        "",
        "model 'policy' (a time-out)",
    ]


def test_causes_in_words() -> None:
    tally = Tally(put_back=2)
    tally.add_retry(pb.BOUNDARY_MODEL, "MODEL_TIMEOUT")
    tally.failures["TOOL"] = tally.causes["TOOL TOOL_TIMEOUT"] = 3
    assert progress_lines(figures(tally), 10)[-1] == (
        "put back 2  failed: TOOL TOOL_TIMEOUT 3  retried: MODEL MODEL_TIMEOUT 1"
    )


def test_where_a_task_is() -> None:
    assert split_place("a:b/t.jsonl:3") == (Path("a:b/t.jsonl"), 3)
    for wrong in ("t.jsonl", ":3", "t.jsonl:0", "t.jsonl:x", "3"):
        with pytest.raises(click.UsageError):
            split_place(wrong)


def test_events_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    printer = EventPrinter()
    delta = pb.RolloutEvent()
    delta.output_delta.text = b"fi"
    unknown = pb.RolloutEvent()
    bodies = [delta, unknown, answer("five"), verdict(0.5, found="5"), completed()]
    for event in make_events("ro-1", 1, *bodies, task=make_task()):
        printer.show(event)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "  started agent tool_loop, environment math",
        "     user What is 2+3?",
        "          fi",
        "assistant five",
        " verified reward 0.5",
        '          {"found":"5"}',
        "completed MODEL_FINISHED, 0 model calls, 0 tool calls, 0 tokens in, 0 out, 0.00 s",
    ]
    printer.failure(FailedAttempt(failed().failed.failure, pb.Rollout()))
    assert "failed MODEL: the endpoint is down. A retry is safe.\n" in capsys.readouterr().out
    fault = MeshError(errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT, "KeyError('wanted')")
    failure = pb.Failure(boundary=pb.BOUNDARY_RESOURCE, status=to_status(fault), retry_safe=True)
    printer.failure(FailedAttempt(failure, pb.Rollout()))
    said = "ENVIRONMENT_FAULT: KeyError('wanted'). Fix the code, then retry.\n"
    assert said in capsys.readouterr().out


def test_the_public_face_is_sorted_and_there() -> None:
    assert gymmesh_client.__all__ == sorted(gymmesh_client.__all__)
    assert all(hasattr(gymmesh_client, name) for name in gymmesh_client.__all__)

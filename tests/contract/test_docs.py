"""The documentation is true: what it shows runs, loads, parses and exists.

How blocks are marked stands in tests/support/docs.py.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import click
import msgspec
import pytest

from deploy.observe.families import declared
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_agent.config import AgentConfig
from gymmesh_cli.terminal import exits
from gymmesh_client import TaskDefaults, TaskProblem, TaskReader
from gymmesh_client.tasks import OWN_KEYS as TASK_KEYS
from gymmesh_conformance import __main__ as conformance
from gymmesh_conformance.suites import load_profile
from gymmesh_data import EXPORTS
from gymmesh_discovery.config import ConsulConfig, ConsulTls, DiscoveryConfig, KubernetesConfig
from gymmesh_mesh.compose import ServiceKind
from gymmesh_mesh.config import Defaults, MeshConfig, MeshSettings
from gymmesh_model import backends
from gymmesh_model.backends.facts import backend_class, backend_kinds
from gymmesh_model.backends.local import LocalOptions
from gymmesh_model.backends.replay.recording import read_row
from gymmesh_model.config import AdaptConfig, CacheConfig, ModelConfig
from gymmesh_model.convert import ChatOptions
from gymmesh_model.vllm import EngineConfig, ServeConfig
from gymmesh_relay.config import RelayConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_rows import COLUMNS as ROW_KEYS
from gymmesh_runtime.config import load_config
from gymmesh_runtime.contract import methods_by_full_name
from gymmesh_runtime.security import IdentityConfig, LimitsConfig, SecurityConfig, TlsConfig
from gymmesh_sandbox.config import ResourceAmounts, SandboxConfig
from tests.support.cli import run
from tests.support.docs import (
    ANSWERS,
    ROOT,
    Page,
    cli_options,
    pages,
    parse_command,
    read_page,
    reason_table,
)

BOUND_S = 240.0
PAGES = pages()
BY_NAME = {page.path.name: page for page in PAGES}
# What differs from run to run in a row.
VARYING = frozenset(
    ("rollout_id", "run_id", "created_at", "timings", "duration_us", "seed", "started_at",
     "total_us", "queue_us", "endpoint_us", "retry_us")
)  # fmt: skip
# Machine paths, issue numbers, registries' hosts, and words about how the project is made.
UNWANTED = re.compile(
    r"/work\b|/root\b|/home/|/tmp/|(?<!&)#\d|\bissues?/\d|pypi\.org|pythonhosted|npmjs|ghcr\.io|docker\.io"
    r"|\bLLM-written\b|\bAI-generated\b|\bcopilot\b|\bpull request|\bTODO\b|\bFIXME\b|@@",
    re.IGNORECASE,
)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)


@every_page
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links():
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.is_relative_to(ROOT), link
        assert path.exists(), link
        if anchor:
            assert anchor in read_page(path).anchors(), link


@pytest.mark.parametrize("name", ["architecture.md", "contributing.md"])
def test_the_files_that_a_page_names_are_there(name: str) -> None:
    named = re.findall(
        r"`((?:proto|services|clients|deploy|tests|tools)/[^` ]+)`", BY_NAME[name].text
    )
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_rooms_of_the_architecture_are_there() -> None:
    """A paragraph names a package's folder, and then rooms and files within it."""
    text = BY_NAME["architecture.md"].text.partition("## The packages")[2].partition("\n## ")[0]
    rooms = [
        (package, name)
        for paragraph in text.split("\n\n")
        if len(packages := re.findall(r"\(`((?:services|clients)/[^`]+)`\)", paragraph)) == 1
        for package in packages
        for name in re.findall(r"`([a-z_/]+/?|[a-z_]+\.py)`", paragraph)
        if "/" in name or name.endswith(".py")
        if not name.startswith(("services/", "clients/", "proto/"))
    ]
    assert len(rooms) > 20
    for package, name in rooms:
        assert (ROOT / package / name).exists(), f"{package}/{name}"


def linked_from(path: Path) -> list[Path]:
    """The files that a page links, in its order."""
    links = [link.partition("#")[0] for link in read_page(path).links() if "://" not in link]
    return [(path.parent / link).resolve() for link in links if link]


def test_the_readme_leads_to_every_page() -> None:
    """Through docs/index.md, which lists each page once; environments have a list of their own."""
    index = ROOT / "docs/index.md"
    assert index in linked_from(ROOT / "README.md")
    listed = linked_from(index)
    ready = ROOT / "docs/reference/environments"
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path.parent == ready:
            assert path in linked_from(ROOT / "docs/how-to/environments.md"), path.name
        elif path != index:
            assert listed.count(path) == 1, f"docs/index.md lists {path.name} once"
    pictures = {path for page in PAGES for path in linked_from(page.path)}
    for path in (ROOT / "docs").glob("*.svg"):
        assert path in pictures, f"no page shows {path.name}"


@every_page
def test_nothing_is_said_that_does_not_belong_here(page: Page) -> None:
    assert UNWANTED.findall(page.text) == []


@every_page
def test_options_exist(page: Page) -> None:
    known = cli_options()
    if page.path.name == "conformance.md":
        known |= {one for action in conformance._parser()._actions for one in action.option_strings}
    modules = re.findall(r"python -m (gymmesh_[a-z_.]+)", page.text)
    for module in modules if page.options() - known else []:
        command = [sys.executable, "-m", module, "--help"]
        helped = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        known |= set(re.findall(r"--[a-z-]+", helped.stdout))
    assert page.options() - known == set()


@every_page
def test_command_lines_parse(page: Page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in page.of("console", ""):
        for program, *arguments in block.commands():
            if arguments[:2] == ["-m", "gymmesh_conformance"]:
                conformance._parser().parse_args(arguments[2:])
                continue
            if arguments[:2] == ["-m", "gymmesh_conformance.vectors"]:
                assert len(arguments) == 3
                continue
            if arguments[:2] == ["-m", "tests.conformance.minimal"]:
                assert arguments[2] in ("resource", "model", "agent", "discovery")
                continue
            if program == "make":
                assert set(arguments) <= targets, arguments
                continue
            if program == "python" and "run" in block.check:  # it is run, too
                assert arguments[0] in {one.after("write") for one in page.blocks}
                continue
            assert program == "gym-cli", f"line {block.line}: {program}"
            try:
                parse_command(arguments)
            except click.UsageError as error:
                pytest.fail(f"line {block.line}: {error.format_message()}")


def test_a_command_line_that_is_wrong_does_not_parse() -> None:
    for wrong in (["colect"], ["collect", "--inptu", "x"], ["collect"], ["data", "sample"]):
        with pytest.raises(click.UsageError):
            parse_command(wrong)


@every_page
def test_configurations_load(page: Page, tmp_path: Path) -> None:
    for block in page.of("yaml"):
        if "skip" in block.check:
            continue
        path = tmp_path / f"line-{block.line}.yaml"
        path.write_text(block.text)
        if "profile" in block.check:
            assert load_profile(path)
            continue
        if "!json" in block.text:
            assert load_profile(path)["task"]
            continue
        named = re.findall(r"\$\{([A-Z_]+)\}", block.text)
        load_config([path], [], MeshConfig, env=dict.fromkeys(named, "a value"))


@every_page
def test_task_rows_and_recordings_are_right(page: Page, tmp_path: Path) -> None:
    reader = TaskReader(TaskDefaults("any", "any"))
    for block in page.of("jsonl"):
        if "data" in block.check:
            continue
        if "recording" in block.check:
            for line in block.text.splitlines():
                read_row(json.loads(line))
            continue
        path = tmp_path / f"line-{block.line}.jsonl"
        path.write_text(block.text)
        found = list(reader.read(path))
        assert found, f"line {block.line} holds no task"
        assert [one for one in found if isinstance(one, TaskProblem)] == []
    for block in page.of("json"):
        json.loads(block.text)


@every_page
def test_what_a_page_shows_runs(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a page's files, commands and Python, in a folder of their own, and with runs of their
    own: another page has a run of the same name.
    """
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, text in page.files().items():
        (tmp_path / name).write_text(text)
    _run_commands(page, tmp_path)
    _compare_rows(page, tmp_path)
    if page.of("python"):
        (tmp_path / "page.py").write_text(page.python())
        done = _run(["-W", "error", "page.py"], tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


def _run_commands(page: Page, folder: Path) -> None:
    replay = []
    if ANSWERS in page.hidden:
        replay = ["--set", "models.policy.backend=replay"]
        replay += ["--set", f"models.policy.path={ANSWERS}"]
    for block in page.blocks:
        if "write" in block.check:
            (folder / block.after("write")).write_text(block.text)
        if block.language != "console" or "run" not in block.check:
            continue
        said = ""
        for program, *arguments in block.commands():
            if program == "python":
                ended = _run(["-W", "error", *arguments], folder)
                assert ended.returncode == int(block.after("exit")), ended.stderr
                said = ended.stdout
                continue
            more = replay if arguments[0] in ("collect", "run") else []  # those that call a model
            done = run(*arguments, *more, cwd=folder)
            where = f"{page.path.name}, line {block.line}"
            assert done.code == int(block.after("exit")), f"{where}: {done.err}"
            said = done.err if done.code == exits.USAGE else done.out
        if shown := block.shown():
            if replay:  # a command that the summary repeats has what was added here
                said = said.replace(f" {shlex.join(replay)}", "")
            assert _masked(shown) == _masked(said.splitlines())


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def _masked(lines: list[str]) -> list[str]:
    """Lines without what varies: fractions, such as of seconds, ids of rollouts, and the width of
    rules, which is the terminal's.
    """
    varies = re.compile(r"\d+\.\d+|\bro-[0-9a-f]{20}\b|─+")
    return [varies.sub("N", line.rstrip()) for line in lines if line.strip()]


def _compare_rows(page: Page, folder: Path) -> None:
    for block in page.of("json"):
        if "row" in block.check:
            shown = json.loads(block.text)
            row = _rows(folder / block.after("row"))[shown["task_id"], shown["repeat_index"]]
            # The page leaves out what `response` echoes of the request.
            row["response"] = {key: row["response"][key] for key in shown["response"]}
        elif "part" in block.check:
            shown = json.loads(block.text)
            rows = _rows(folder / block.after("of"))
            row = next(iter(rows.values()))[block.after("part")]
        else:
            continue
        assert _settled(shown) == _settled(row)
        assert list(shown) == list(row)


def _rows(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(row["task_id"], row["repeat_index"]): row for row in rows}


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: None if key in VARYING else _settled(one) for key, one in value.items()}
    return [_settled(one) for one in value] if isinstance(value, list) else value


def test_the_readme_shows_the_first_environment_as_it_is() -> None:
    shop = (ROOT / "examples/first_environment/shop.py").read_text()
    assert BY_NAME["README.md"].of("python")[0].text == shop
    assert len(shop.splitlines()) < 30
    shown = [block.text for block in BY_NAME["README.md"].of("yaml")]
    whole = load_config([ROOT / "examples/first_environment/shop.yaml"], [], MeshConfig)
    assert "examples/first_environment/shop.py:Shop" in shown[0]
    assert whole.environments["shop"].use == "examples/first_environment/shop.py:Shop"


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("## models", ModelConfig),
        ("Keys of `adapt`", AdaptConfig),
        ("Keys of `cache`", CacheConfig),
        ("Keys of `serve`", ServeConfig),
        ("Keys of `engine`", EngineConfig),
        ("Options of `local`", LocalOptions),
        ("Options of `chat`", ChatOptions),
        ("## environments", EnvironmentConfig),
        ("## sandboxes", SandboxConfig),
        ("Keys of `default_resources`", ResourceAmounts),
        ("## relays", RelayConfig),
        ("## agents", AgentConfig),
        ("Keys of `collect`", CollectConfig),
        ("## defaults", Defaults),
        ("## mesh", MeshSettings),
        ("## discovery", DiscoveryConfig),
        ("Keys of `consul`", ConsulConfig),
        ("Keys of `kubernetes`", KubernetesConfig),
        ("Keys of `tls`", ConsulTls),
        ("## security", SecurityConfig),
        ("Keys of an identity", IdentityConfig),
        ("Keys of `limits`", LimitsConfig),
        ("Keys of `tls`, for TLS between services", TlsConfig),
    ],
)
def test_every_key_is_documented_with_its_default(
    heading: str, schema: type[msgspec.Struct]
) -> None:
    _, found, rest = BY_NAME["configuration.md"].text.partition(f"\n{heading}")
    assert found
    table = rest[rest.index("|---") :].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| [\w ]+ \| `([^`]*)` \| \S", table, re.MULTILINE)
    real = [(one.name, _spelled(one)) for one in msgspec.structs.fields(schema)]
    assert rows == real, (
        f"docs/reference/configuration.md, {heading}: list the keys, in order, with defaults"
    )


def _spelled(field: msgspec.structs.FieldInfo) -> str:
    factory = field.default_factory
    default = field.default if factory is msgspec.NODEFAULT else factory()
    if isinstance(default, msgspec.Struct):
        return "{}"
    if isinstance(default, str) and default:
        return default
    return json.dumps(default)


def test_every_collect_option_is_documented() -> None:
    context = click.Context(_command("collect"))
    options = {option for parameter in context.command.params for option in parameter.opts}
    missing = {option for option in options if option.startswith("--")}
    missing -= BY_NAME["collecting.md"].options()
    assert not missing, f"docs/how-to/collecting.md does not say what these are: {sorted(missing)}"


def _command(name: str) -> click.Command:
    from gymmesh_cli.main import cli

    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def test_every_key_of_the_rows_is_documented() -> None:
    text = BY_NAME["collecting.md"].text
    tasks, _, rows = text.partition("\n## Output rows")
    for key in ("responses_create_params", *TASK_KEYS):
        assert f"`{key}`" in tasks
    missing = sorted(key for key in ROW_KEYS - {"failure"} if f"`{key}`" not in rows)
    assert not missing, (
        f"docs/how-to/collecting.md, Output rows, does not say what these are: {missing}"
    )
    assert "part failure of" in rows


def test_every_backend_is_documented_with_the_keys_that_it_needs() -> None:
    table = BY_NAME["models.md"].text.partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", table, re.MULTILINE))
    kinds = backend_kinds()
    gone, missing = sorted({*rows} - {*kinds}), sorted({*kinds} - {*rows})
    assert not missing, f"the table at the top of docs/how-to/models.md has no row of {missing}"
    assert not gone, (
        f"the table at the top of docs/how-to/models.md has {gone}, which no backend is"
    )
    for kind in kinds:
        facts = backend_class(kind)
        needed = {
            "url": facts.calls_endpoint and facts.needs_url,
            "urls": facts.several_urls,
            "model": bool(facts.needs_model),
            "path": bool(facts.needs_path),
            "serve": facts.starts_vllm,
            "engine": facts.starts_vllm,
        }
        keys = {key for key, needs in needed.items() if needs}
        told = needed.keys() & set(re.findall(r"`(\w+)`", rows[kind]))
        assert told == keys, (
            f"docs/how-to/models.md, row `{kind}`: it needs {sorted(keys)} by the facts of its "
            f"class, and "
            f"the row says {sorted(told)}"
        )


def test_every_option_of_a_backend_is_documented() -> None:
    """Of the structs in the folder of backends whose name says that they are options."""
    pages = BY_NAME["models.md"].text + BY_NAME["configuration.md"].text
    documented = set(re.findall(r"[`{ ](\w+)(?=[`:])", pages))
    found = set()
    for module in pkgutil.walk_packages(backends.__path__, f"{backends.__name__}."):
        for name, one in vars(importlib.import_module(module.name)).items():
            if name.endswith("Options") and issubclass(one, msgspec.Struct):
                found |= {f"{field} ({name})" for field in one.__struct_fields__}
    assert len(found) > 10
    missing = sorted(one for one in found if one.split()[0] not in documented)
    assert not missing, (
        f"neither docs/how-to/models.md nor docs/reference/configuration.md has {missing}"
    )


def test_every_export_is_documented() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| ", BY_NAME["export.md"].text, re.MULTILINE)
    missing = sorted({*EXPORTS} - {*rows})
    assert not missing, f"the table of formats in docs/how-to/export.md has no row of {missing}"


def test_every_permission_is_documented_with_what_it_lets_call() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", BY_NAME["security.md"].text, re.MULTILINE)
    documented = {name: sorted(re.findall(r"`([A-Z]\w+)`", text)) for name, text in rows}
    takes: dict[str, list[str]] = {}
    for spec in methods_by_full_name().values():
        takes.setdefault(spec.permission, []).append(spec.name)
    assert len(takes) > 5
    for permission, methods in takes.items():
        assert documented[permission] == sorted(methods), permission


def test_every_kind_that_an_identity_can_register_is_documented() -> None:
    words = {"environment": "resource"}
    kinds = sorted({words.get(kind, kind) for kind in get_args(ServiceKind)} - {"discovery"})
    listed = {
        "configuration.md": r"^\| `registers` \|.*\((.*?)\)",
        "security.md": r"The kinds are (.*?)\. With `registers",
    }
    for page, where in listed.items():
        found = re.search(where, BY_NAME[page].text, re.MULTILINE)
        assert found is not None, page
        assert re.findall(r"`(\w+)`", found[1]) == kinds, page


def test_every_exit_code_is_documented() -> None:
    text = BY_NAME["collecting.md"].text
    codes = (exits.DONE, exits.NOTHING_DONE, exits.USAGE, exits.WITH_FAILURES, exits.INTERRUPTED)
    assert re.findall(r"^\| (\d+) \|", text, re.MULTILINE) == [str(code) for code in codes]


def test_every_stop_reason_is_documented() -> None:
    names = [name.removeprefix("STOP_REASON_") for name in rollout_pb2.StopReason.keys()[1:]]
    row = next(
        line for line in BY_NAME["collecting.md"].text.splitlines() if "| `stop_reason`" in line
    )
    listed = re.findall(r"`([A-Z_]+)`", row)
    assert listed == names, (
        "docs/how-to/collecting.md, row `stop_reason`: list those of the enum, in order"
    )


def test_every_metric_is_documented() -> None:
    rows = re.findall(
        r"^\| `(gymmesh_\w+)` \| (\w+) \| ([^|]*) \|",
        BY_NAME["observability.md"].text,
        re.MULTILINE,
    )
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    real = {}
    for metric in declared().values():
        about = next(iter(metric.describe()))
        name = about.name + ("_total" if about.type == "counter" else "")
        real[name] = (about.type, set(metric.label_names))
    assert len(real) > 10
    names = sorted(name for name in {*documented, *real} if documented.get(name) != real.get(name))
    right = {name: (real[name][0], sorted(real[name][1])) for name in names if name in real}
    assert not names, (
        f"docs/reference/observability.md is not right about {names}; what there is: {right}"
    )


def test_every_boundary_is_documented() -> None:
    names = [name.removeprefix("BOUNDARY_") for name in rollout_pb2.Boundary.keys()[1:]]
    text = BY_NAME["errors.md"].text
    section = text[text.index("## Boundaries") : text.index("## Reasons")]
    assert re.findall(r"^\| ([A-Z]+) \|", section, re.MULTILINE) == names


def test_every_reason_is_documented() -> None:
    table = reason_table()
    assert table.count("\n") - 1 == len(errors_pb2.ErrorReason.keys()) - 1
    assert table in BY_NAME["errors.md"].text, (
        f"put this table into docs/reference/errors.md:\n{table}"
    )


@pytest.mark.parametrize("name", ["flow.svg", "house.svg"])
def test_a_picture_is_well_formed(name: str) -> None:
    assert ElementTree.parse(ROOT / "docs" / name).getroot().get("aria-label")


def test_the_changelog_begins_with_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    heads = re.findall(r"^## (\S+)", BY_NAME["CHANGELOG.md"].text, re.MULTILINE)
    assert heads[0] == project["version"]

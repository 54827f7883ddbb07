"""What is read of task folders, and what is refused, by the file and the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymmesh_resource import Task, TaskInvalid
from gymmesh_resource.environments.harbor import HarborEnvironment
from gymmesh_sandbox_access import WORKSPACE, SandboxSpec
from tests.unit.environments.harbor.made_tasks import (
    COMPOSE,
    IMAGE,
    NEW,
    RUNNABLE,
    harbor_task,
    older_task,
    write_tasks,
)
from tests.unit.resource.served import task


def environment(place: Path, files: dict[str, str], **options: Any) -> HarborEnvironment:
    return HarborEnvironment(tasks=str(write_tasks(place, {"t": files})), **options)


def spec_of(made: HarborEnvironment) -> SandboxSpec:
    return made.sandbox_specs(Task(task(harbor="t")))[WORKSPACE]


def problem_of(made: HarborEnvironment, name: str = "t") -> str:
    with pytest.raises(TaskInvalid) as raised:
        made.check_task(Task(task(harbor=name)))
    assert raised.value.field == "harbor"
    return raised.value.problem


def test_every_task_folder_is_a_row(tmp_path: Path) -> None:
    write_tasks(tmp_path, {**RUNNABLE, "broken": {"task.toml": "["}, "none": {"a": "b"}})
    made = HarborEnvironment(tasks=str(tmp_path), variables={"WORD": "hello"}, network="agent")
    rows = {row["task_id"]: row for row in made.tasks()}
    assert set(rows) == {*RUNNABLE, "broken"}
    assert rows["marked"]["responses_create_params"]["input"][0]["content"] == "Do it.\n"
    for name, row in rows.items():
        if name != "broken":
            made.check_task(Task.of(row))
    assert problem_of(made, "broken").startswith("broken: task.toml: is not TOML")
    some = HarborEnvironment(tasks=str(tmp_path), only=["older", "older-t*", "suite/*"])
    assert [row["task_id"] for row in some.tasks()] == ["older", "older-times", "suite/deep/nested"]
    alone = HarborEnvironment(tasks=str(tmp_path / "text"))
    assert [(row["task_id"], row["harbor"]) for row in alone.tasks()] == [("text", ".")]


def test_what_a_task_says_is_asked_of_the_sandbox(tmp_path: Path) -> None:
    toml = f'{NEW}cpus = 2\nmemory_mb = 2048\nstorage_mb = 10240\nworkdir = "/app"\n'
    toml += 'env = {A = "${B:-c}"}\n[agent]\nuser = "dev"\n'
    spec = spec_of(environment(tmp_path, harbor_task(toml)))
    assert (spec.cpus, spec.memory_mb, spec.disk_mb) == (2, 2048, 10240)
    assert (spec.image, spec.workdir, spec.user) == ("made/box:1", "/app", "dev")
    assert (dict(spec.env), spec.network, spec.lent) == ({"A": "c"}, "agent", True)


def test_storage_is_no_limit_where_the_option_says_so(tmp_path: Path) -> None:
    toml = f"{NEW}memory_mb = 2048\nstorage_mb = 10240\n"
    spec = spec_of(environment(tmp_path, harbor_task(toml), storage_limit=False))
    assert (spec.memory_mb, spec.disk_mb) == (2048, 0)


@pytest.mark.parametrize(
    ("said", "option", "reach"),
    [
        ('network_mode = "no-network"', None, "agent"),
        ('network_mode = "allowlist"\nallowed_hosts = ["a.org", "*.b.org"]', None,
         ["a.org", "*.b.org"]),
        ("", "task", "open"),
        ("allow_internet = false", "task", "agent"),
        ("allow_internet = true", "task", "open"),
        ('network_mode = "public"', "agent", "agent"),
        ('network_mode = "no-network"', ["c.org"], ["c.org"]),
    ],
)  # fmt: skip
def test_the_network_is_the_tasks_or_the_options(
    tmp_path: Path, said: str, option: Any, reach: Any
) -> None:
    toml = f'[environment]\ndocker_image = "i"\n{said}\n'
    assert spec_of(environment(tmp_path, harbor_task(toml), network=option)).network == reach


def test_a_public_network_is_the_operators_to_allow(tmp_path: Path) -> None:
    made = environment(tmp_path, harbor_task('[environment]\ndocker_image = "i"\n'))
    assert "'network' to 'task'" in problem_of(made)


def test_the_image_is_the_services_for_the_task_or_one_that_is_built(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "no-network"\nbuild_timeout_sec = 900\n'
    files = harbor_task(toml)
    files["environment/Dockerfile"] = "FROM made/box:1\n"
    building = environment(tmp_path / "a", files)
    built = spec_of(building)
    assert built.build is not None
    assert built.start_timeout_s == 0  # a service refuses more than its own
    assert built == spec_of(building)  # a service builds equal content once
    for images, image in (({"t": "x", "*": "y"}, "x"), ({"*": "y"}, "y")):
        mapped = spec_of(environment(tmp_path / "a", files, images=images))
        assert (mapped.image, mapped.build) == (image, None)
    named = environment(tmp_path / "b", harbor_task(IMAGE), images={"made/box:1": "z", "*": "y"})
    assert spec_of(named).image == "z"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (harbor_task(f'{NEW}[[steps]]\nname = "a"\n'), "steps/a/instruction.md: cannot be read"),
        (harbor_task(f'{NEW}[[steps]]\nname = "../a"\n'), "steps: has a step named '../a'"),
        (harbor_task(f'{NEW}[[steps]]\nname = "a"\n[[steps]]\nname = "A"\n',
                     **{"steps/a/instruction.md": "", "steps/A/instruction.md": ""}),
         "task.toml steps: has 'A' twice"),
        (harbor_task(f'multi_step_reward_strategy = "best"\n{NEW}'),
         "task.toml multi_step_reward_strategy: is 'best'; use mean or final"),
        (harbor_task(f'artifacts = ["a"]\n{NEW}'), "task.toml artifacts: has 'a'"),
        (harbor_task(f'artifacts = ["/a/../b"]\n{NEW}'), "task.toml artifacts: has '/a/../b'"),
        (harbor_task(f'artifacts = [{{source = "/a", service = "db"}}]\n{NEW}'),
         "task.toml artifacts: names the service 'db'"),
        (harbor_task(f'{NEW}[[verifier.collect]]\ncommand = "a"\nservice = "db"\n'),
         "task.toml verifier.collect: names the service 'db'"),
        (harbor_task(f"{NEW}gpus = 1\n"), "task.toml environment.gpus: is not supported"),
        (harbor_task(f'{NEW}[[environment.mcp_servers]]\nname = "a"\nurl = "http://a"\n'),
         "task.toml environment.mcp_servers: has 'a' with the transport 'sse'; only the transport"),
        (harbor_task(f'{NEW}[[environment.mcp_servers]]\nname = "a"\ntransport = "stdio"\n'),
         "task.toml environment.mcp_servers: has 'a' without a command"),
        (harbor_task(NEW + 2 * ('[[environment.mcp_servers]]\nname = "a"\ncommand = "b"\n'
                                'transport = "stdio"\n')),
         "task.toml environment.mcp_servers: has 'a' twice"),
        (harbor_task(f'{NEW}[environment.healthcheck]\nretries = 2\n'),
         "task.toml environment.healthcheck: object missing required field `command`"),
        (harbor_task(f'{NEW}os = "windows"\n'), "task.toml environment.os: is 'windows'"),
        (harbor_task(f'{NEW}[verifier]\nenvironment_mode = "apart"\n'),
         "task.toml verifier.environment_mode: is 'apart'; use 'shared' or 'separate'"),
        (harbor_task(f'{NEW}[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\n'),
         "task.toml verifier.environment: is set, but environment_mode is 'shared'; "
         "remove this table, or set environment_mode to 'separate'"),
        (harbor_task(f'{NEW}[verifier.environment]\ngpus = 1\n'),
         "task.toml verifier.environment.gpus: is not supported"),
        (harbor_task(f'{NEW}[verifier]\nenvironment_mode = "separate"\n',
                     **{"tests/docker-compose.yaml": ""}),
         "tests/docker-compose.yaml: is not supported"),
        (harbor_task(f'{NEW}[verifier]\ntimeout_sec = "long"\n'),
         "task.toml verifier.timeout_sec: expected"),
        (harbor_task('schema_version = "2.0"\n'), "task.toml schema_version: is '2.0'"),
        (harbor_task('[environment]\ndocker_image = "i"\nnetwork_mode = "half"\n'),
         "task.toml environment.network_mode: is 'half'"),
        (harbor_task('[environment]\ndocker_image = "i"\nnetwork_mode = "allowlist"\n'
                     'allowed_hosts = ["10.0.0.0/8"]\n'), "task.toml environment.allowed_hosts"),
        (harbor_task('[environment]\ndocker_image = "i"\nmemory = "much"\n'),
         "task.toml environment.memory: is 'much'"),
        (harbor_task(f'{NEW}env = {{A = "${{SECRET}}"}}\n'),
         "environment.env.A: needs the variable SECRET"),
        (harbor_task(f'{NEW}[verifier]\nenv = {{A = "${{HOME}}"}}\n'),
         "verifier.env.A: needs the variable HOME"),
        (harbor_task("[environment]\n"), "environment/Dockerfile: is missing"),
        (harbor_task(**{"environment/docker-compose.yaml": ""}),
         "environment/docker-compose.yaml: is not supported"),
        (harbor_task(**{"trajectory.json": "{}"}), "trajectory.json: is not supported"),
        ({"task.toml": NEW, "instruction.md": ""}, "tests/test.sh: is missing"),
        (older_task("parser_name: own\n"), "task.yaml parser_name: is 'own'; use one of pytest, "),
        (older_task(compose=f"{COMPOSE}  other: {{image: a}}\n"), "docker-compose.yaml services"),
        (older_task(compose=f"{COMPOSE}    privileged: true\n"),
         "docker-compose.yaml services.client.privileged"),
        (older_task(compose=f"{COMPOSE}      - /:/host\n"),
         "docker-compose.yaml services.client.volumes"),
        (older_task(typed="- run: a\n"),
         "solution.yaml: Object missing"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused_by_its_name(
    tmp_path: Path, files: dict[str, str], says: str
) -> None:
    assert says in problem_of(environment(tmp_path, files, network="agent"))


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ('[verifier]\nnetwork_mode = "public"\n', "verifier"),
        ('[agent]\nnetwork_mode = "public"\n', "agent"),
        (
            '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n[steps.agent]\n'
            'network_mode = "allowlist"\nallowed_hosts = ["a.org"]\n',
            "steps.b.agent",
        ),
    ],
)
def test_one_sandbox_has_one_network(tmp_path: Path, said: str, place: str) -> None:
    files = harbor_task(NEW + said)
    files |= {f"steps/{name}/instruction.md": "" for name in "ab"}
    for option in (None, "task"):
        made = environment(tmp_path, files, network=option)
        assert f"task.toml {place}.network_mode: differs" in problem_of(made)
    # With one network for all tasks there is none to switch.
    assert spec_of(environment(tmp_path, files, network="none")).network == "none"


def test_a_phase_decides_where_the_tests_have_a_sandbox_of_their_own(tmp_path: Path) -> None:
    files = harbor_task(
        f'{NEW}[agent]\nnetwork_mode = "public"\n[verifier]\nenvironment_mode = "separate"\n'
    )
    assert spec_of(environment(tmp_path, files, network="task")).network == "open"


def test_nothing_leads_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    write_tasks(tmp_path / "tasks", {"t": harbor_task()})
    made = HarborEnvironment(tasks=str(tmp_path / "tasks"))
    assert "is outside the folder" in problem_of(made, "../tasks-beside")
    (tmp_path / "tasks/t/instruction.md").unlink()
    (tmp_path / "tasks/t/instruction.md").symlink_to(tmp_path / "secret")
    assert problem_of(made) == "t: instruction.md: leads to a path outside of the task's folder"

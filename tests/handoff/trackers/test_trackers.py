"""A run at W&B, MLflow and Trackio: written by their own libraries, read back by their own code.

Nothing leaves the machine: W&B is offline, MLflow has a database in a file, Trackio a folder. The
commands are those of docs/how-to/training.md and docs/how-to/profile.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh_data.track import TRACKERS
from tests.support.cli import Ended, gym
from tests.support.docs import ROOT, read_page

SECRET: Final = "open-sesame-1234"
_ADD: Final = {
    "type": "function_call",
    "name": "add",
    "arguments": '{"item": "apple", "count": 2}',
    "call_id": "call_1",
}
_ANSWERS: Final = (
    {
        "match": "Put two apples and a tea into the basket.",
        "answers": [
            {"output": [_ADD], "usage": {"input_tokens": 9, "output_tokens": 7}},
            {"text": f"Done: {SECRET}."},
        ],
    },
    {
        "match": "I need three loaves of bread in the basket.",
        "answers": [{"error": {"reason": "MODEL_SERVER_ERROR", "message": "HTTP 500"}}],
    },
)
_FINISHED: Final = "rollouts/finished"

# MLflow reads its database with what SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Place:
    """A folder in which a tracked run is collected, and where the tracker writes."""

    def __init__(self, folder: Path, tracker: str) -> None:
        self.folder, self.tracker = folder, tracker
        (folder / "examples").symlink_to(ROOT / "examples")
        lines = "".join(json.dumps(one) + "\n" for one in _ANSWERS)
        (folder / "answers.jsonl").write_text(lines)
        self.env = {
            "WANDB_MODE": "offline",
            "WANDB_API_KEY": SECRET,
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
            "TRACKIO_DIR": str(folder / "trackio"),
            "HOME": str(folder),
        }

    async def collect(self, *more: str, **env: str) -> Ended:
        """The page's command, with the tracker of this place."""
        policy = ("models.policy.backend=replay", "models.policy.path=answers.jsonl")
        sets = [part for one in policy for part in ("--set", one)]
        command = [*self._command("how-to/training.md"), *sets, "--num-repeats", "3", *more]
        return await gym(*command, cwd=self.folder, env=self.env | env, fresh=True)

    async def profile(self, *more: str, **env: str) -> Ended:
        """The page's command, likewise, over what was collected."""
        command = [*self._command("how-to/profile.md"), *more]
        return await gym(*command, cwd=self.folder, env=self.env | env, fresh=True)

    def known(self) -> dict[str, Any]:
        about = json.loads((self.folder / "rollouts.run.json").read_text())
        known: dict[str, Any] = about["trackers"][self.tracker]
        return known

    def _command(self, page: str) -> list[str]:
        """The command of a page that has --track, with the tracker of this place."""
        for block in read_page(ROOT / "docs" / page).of("console"):
            for line in block.commands():
                if "--track" in line:
                    command: list[str] = line[1:]
                    command[command.index("--track") + 1] = self.tracker
                    return command
        raise AssertionError(f"docs/{page} shows no command with --track")


@pytest.fixture(params=TRACKERS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


async def test_a_run_and_its_resumption_are_one_run_there(place: Place) -> None:
    first = await place.collect()
    assert first.code == 3, first.err
    assert place.tracker not in first.err.replace("--track", "")
    begun = place.known()
    again = await place.collect("--resume", "--retry", "failed")
    assert again.code == 3, again.err
    assert place.known() == begun
    _READERS[place.tracker](place, begun["id"])


def _wandb(place: Place, run_id: str) -> None:
    logs = sorted((place.folder / "wandb").glob("offline-run-*/*.wandb"))
    assert len(logs) == 2
    history: dict[str, Any] = {}
    for log in logs:
        config, some, table = _of_log(log, run_id)
        _check_config(config)
        history |= some
        assert history[_FINISHED] == 6
        _check_table(table["columns"], table["data"])
        assert SECRET.encode() not in log.read_bytes()
    _check_measures(history)


def _of_log(log: Path, run_id: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The configuration of a run, its last measures, and its table."""
    records = list(_records(log.read_bytes()))
    runs = [one.run for one in records if one.HasField("run")]
    assert {(one.project, one.run_id) for one in runs} == {("gymmesh", run_id)}
    config = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
    history: dict[str, Any] = {}
    for one in records:
        for item in one.history.item if one.HasField("history") else ():
            history[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    table = json.loads((log.parent / "files" / history["samples.path"]).read_text())
    return config, history, table


def _records(data: bytes) -> Iterator[Any]:
    """W&B's records in its log, which has LevelDB's frames after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    block, at, whole = 32 * 1024, 7, b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield Record.FromString(whole)
            whole = b""


def _mlflow(place: Place, run_id: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(place.env["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("gymmesh")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.status) == (run_id, "FINISHED")
    _check_measures(run.data.metrics)
    steps = [one.step for one in client.get_metric_history(run_id, "rollouts/completed")]
    assert steps[-1] == 6
    assert run.data.params["options.repeats"] == "3"
    config, table = _artifacts(place, run)
    _check_config(config)
    _check_table(table["columns"], table["data"])


def _artifacts(place: Place, run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration and the table of a run at MLflow."""
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    folder = folder if folder.is_absolute() else place.folder / folder
    found = [json.loads((folder / f"{name}.json").read_text()) for name in ("run", "samples")]
    return found[0], found[1]


def _trackio(place: Place, name: str) -> None:
    script = (
        "import json; from trackio import Api; from trackio.sqlite_storage import SQLiteStorage;"
        "run, = Api().runs('gymmesh');"
        "print(json.dumps([run.name, run.config, SQLiteStorage.get_logs('gymmesh', run.name)]))"
    )
    said = _python(script, place)
    found, config, logs = json.loads(said.splitlines()[-1])
    assert found == name
    _check_config(config)
    _check_measures({key: value for one in logs for key, value in one.items()})
    table = next(one["samples"]["_value"] for one in reversed(logs) if "samples" in one)
    _check_table(list(table[0]), [list(one.values()) for one in table])
    assert SECRET not in said


def _python(script: str, place: Place) -> str:
    import subprocess
    import sys

    env = {**os.environ, **place.env}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


_READERS: Final = {"mlflow": _mlflow, "trackio": _trackio, "wandb": _wandb}


def _check_config(config: dict[str, Any]) -> None:
    assert config["options"]["repeats"] == 3
    assert config["configuration"]["models"]["policy"]["backend"] == "replay"
    assert config["versions"]["gymmesh"]
    assert SECRET not in json.dumps(config)


def _check_measures(values: dict[str, Any]) -> None:
    assert (values["rollouts/completed"], values["rollouts/failed"]) == (3, 3)
    assert values["reward/mean"] == 0.0  # only the apples were bought
    assert values["pass_rate/mean"] == 0.0
    assert values["failures/MODEL"] == 3
    assert values["pass_at/1"] == 0.0
    assert values["length/model_calls"] == 2
    assert values["tokens/output"] == 21


def _check_table(columns: list[str], rows: list[list[Any]]) -> None:
    table = [dict(zip(columns, one, strict=True)) for one in rows]
    # Of the first session all six, of the second the three that ran again.
    assert len(table) in (3, 6)
    for one in table:
        if one["task"] == "shop-1":
            assert (one["reward"], one["answer"]) == (0.0, "Done: ***.")
            assert one["prompt"] == "Put two apples and a tea into the basket."
        else:
            assert (one["reward"], one["outcome"]) == (None, "failed: MODEL MODEL_SERVER_ERROR")


async def test_a_profile_is_a_run_of_its_own_there(place: Place) -> None:
    assert (await place.collect()).code == 3
    about = (place.folder / "rollouts.run.json").read_bytes()
    done = await place.profile()
    assert (done.code, done.err) == (0, "")
    told = next(line for line in done.out.splitlines() if line.startswith("tracked "))
    group = json.loads(about)["run_id"]
    config, measures, columns, rows = _PROFILES[place.tracker](place, told.split()[-1], group)
    _check_config(config)
    assert config["profile"]["inputs"] == ["rollouts.jsonl"]
    assert measures["rollouts/judged"] == 3
    assert (measures["tasks/never_solved"], measures["reward/median"]) == (1, 0.0)
    _check_measures(measures)
    _check_table(columns, rows)
    assert (place.folder / "rollouts.run.json").read_bytes() == about


Profiled = tuple[dict[str, Any], dict[str, Any], list[str], list[list[Any]]]


def _wandb_profile(place: Place, run_id: str, group: str) -> Profiled:
    (log,) = place.folder.glob(f"wandb/offline-run-*/run-{run_id}.wandb")
    config, history, table = _of_log(log, run_id)
    (run,) = {
        (one.run.run_group, one.run.job_type)
        for one in _records(log.read_bytes())
        if one.HasField("run")
    }
    assert run == (group, "profile")
    assert history[_FINISHED] == 6
    return config, history, table["columns"], table["data"]


def _mlflow_profile(place: Place, run_id: str, group: str) -> Profiled:
    from mlflow import MlflowClient

    run = MlflowClient(place.env["MLFLOW_TRACKING_URI"]).get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["gymmesh.run_id"] == group
    config, table = _artifacts(place, run)
    return config, run.data.metrics, table["columns"], table["data"]


def _trackio_profile(place: Place, name: str, group: str) -> Profiled:
    script = (
        "import json; from trackio import Api; from trackio.sqlite_storage import SQLiteStorage;"
        f"run, = [one for one in Api().runs('gymmesh') if one.name == {name!r}];"
        "print(json.dumps([run.config, SQLiteStorage.get_logs('gymmesh', run.name)]))"
    )
    config, logs = json.loads(_python(script, place).splitlines()[-1])
    assert name.startswith(f"{group}-profile-")
    table = next(one["samples"]["_value"] for one in logs if "samples" in one)
    measures = {key: value for one in logs for key, value in one.items()}
    return config, measures, list(table[0]), [list(one.values()) for one in table]


_PROFILES: Final = {
    "mlflow": _mlflow_profile,
    "trackio": _trackio_profile,
    "wandb": _wandb_profile,
}


async def test_a_tracker_that_is_away_changes_no_profile(tmp_path: Path) -> None:
    place = Place(tmp_path, "mlflow")
    assert (await place.collect()).code == 3
    with socket.socket() as nobody:  # bound and not listening
        nobody.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        env = {"MLFLOW_TRACKING_URI": away, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
        done = await place.profile("--json", **env)
    assert done.code == 0
    assert json.loads(done.out)["rollouts"]["judged"] == 3
    assert done.err.count("the profile is complete without the tracker") == 1
    assert "messages were lost" in done.err


async def test_a_tracker_that_is_away_harms_no_run(tmp_path: Path) -> None:
    place = Place(tmp_path, "mlflow")
    with socket.socket() as nobody:  # bound and not listening
        nobody.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = await place.collect(MLFLOW_TRACKING_URI=away, MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    assert done.code == 3
    assert done.err.count("the run continues without the tracker") == 1
    assert "messages were lost" in done.err
    assert len((tmp_path / "rollouts.jsonl").read_text().splitlines()) == 3


async def test_a_collector_that_is_killed_leaves_a_run_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end of the pipe goes with it, and the tracker's process ends the run."""
    from mlflow import MlflowClient

    from gymmesh_data.track import TrackerLink, TrackerRun

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    begun: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    link = TrackerLink("mlflow", print)
    await link.begin(TrackerRun("gymmesh", "run-1", "run-1"), begun.set_result)
    run_id = (await asyncio.wait_for(begun, 90))["id"]
    process, reading = link._process, link._reading
    assert process is not None
    assert process.stdin is not None
    assert reading is not None
    process.stdin.close()
    await asyncio.wait_for(reading, 60)
    assert MlflowClient(uri).get_run(run_id).info.status == "KILLED"
    assert await process.wait() == 0

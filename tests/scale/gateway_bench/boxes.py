"""A mesh whose programs run in sandboxes of bubblewrap: python -m … URL KIND FOLDER.

KIND is `small`, the program of small_program.py, or a known program that is installed in FOLDER.
The model at URL follows the script in the task's prompt.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_mesh import MeshConfig
from gymmesh_responses import params_from_json
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench import talk
from tests.scale.rollout_bench.ours import collect, opened

SMALL: Final = "small"
_SOURCE: Final = Path(__file__).with_name("small_program.py")
_TEXT: Final = "the text 7919"
_COMMAND: Final = f"printf '%s\\n' '{_TEXT}' >out.txt"
_PLACES: Final = 512


def task() -> rollout_pb2.Task:
    """A file to write."""
    prompt = (
        "Write the file out.txt into the current folder with the one line "
        f"{_TEXT!r}, and nothing else. Do it by one command:\n\nSHELL: {_COMMAND}"
    )
    payload = {
        "files": {"README": "a workspace\n"},
        "workdir": "/task",
        "verify_in": "same",
        "checks": [{"name": "text", "run": f"test \"$(cat out.txt)\" = '{_TEXT}'"}],
    }
    return rollout_pb2.Task(
        task_id="write",
        environment="workspace",
        agent="coder",
        params=params_from_json({"input": [{"role": "user", "content": prompt}]}),
        payload_json=json.dumps(payload).encode(),
    )


def configuration(url: str, kind: str, folder: str, place: Path) -> MeshConfig:
    """The mesh; `place`: a folder for its sandboxes."""
    if kind == SMALL:
        source = _SOURCE.read_text("utf-8")
        program: dict[str, Any] = {
            "command": ["python3", "{home}/program.py", "{prompt}"],
            "files": {"{home}/program.py": source},
        }
    else:
        program = {"program": kind, "path": [f"{folder}/{kind}/bin"]}
    binds = {} if kind == SMALL else {"binds": [folder]}
    document = {
        "models": {
            "policy": {
                "backend": "responses",
                "url": url,
                "model": "scripted",
                "max_concurrency": 1024,
            }
        },
        "sandboxes": {
            "boxes": {
                "places": _PLACES,
                "adapts": False,
                "options": {"folder": str(place), **binds},
            }
        },
        "environments": {
            "workspace": {
                "use": "workspace",
                "sandboxes": {"sandbox": "boxes"},
                "session_limit": 0,
                "verify_timeout_s": 120,
                "options": {"network": "agent"},
            }
        },
        "agents": {
            "coder": {"use": "program", "max_steps": 50, "options": {**program, "timeout_s": 580}}
        },
        "defaults": {"environment": "workspace", "agent": "coder"},
        "mesh": {"layout": "cell"},
    }
    return msgspec.convert(document, MeshConfig)


async def main(url: str, kind: str, folder: str) -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    with tempfile.TemporaryDirectory(prefix="gymmesh-bench-") as place:
        rows = Path(place) / "rows"
        rows.mkdir()
        config = configuration(url, kind, folder, Path(place) / "boxes")
        async with opened(config) as mesh:
            await talk.answer(say, {}, partial(collect, mesh, rows, of=task()))


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], sys.argv[3]))

"""The task folders of tasks.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

IMAGE: Final = "localhost/gymmesh/harbor:1"
#: What `${WORD}` stands for, in the runner's process and in the environment's options.
VARIABLES: Final = {"WORD": "hello"}
_BASH: Final = "#!/bin/bash\n"
_KEYS: Final = ("toml", "head", "steps", "keeps", "image")
_SAID: Final[Mapping[str, Mapping[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("tasks.yaml").read_text()
)
NAMES: Final = tuple(_SAID)
#: Tasks whose tests need what the agent left running.
KEEPING: Final = [name for name, said in _SAID.items() if said.get("keeps")]
#: Of each task with a Dockerfile, the folder that it is in.
BUILT: Final = {
    name: path.rpartition("/")[0]
    for name, said in _SAID.items()
    for path in said
    if path.endswith("/Dockerfile")
}


def write_tasks(place: Path) -> None:
    """Writes each task's folder."""
    for name, said in _SAID.items():
        for path, content in _files(said).items():
            if content is None:
                continue
            file = place / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            is_script = path.endswith(".sh")
            file.write_text(f"{_BASH}{content}" if is_script else content)


def _files(said: Mapping[str, Any]) -> dict[str, str | None]:
    image = f'docker_image = "{IMAGE}"\n' if said.get("image", True) else ""
    steps = said.get("steps", {})
    tables = "".join(f'[[steps]]\nname = "{name}"\n{more}' for name, more in steps.items())
    head = f'schema_version = "1.4"\n{said.get("head", "")}[environment]\n{image}'
    files: dict[str, str | None] = {"task.toml": f"{head}{said.get('toml', '')}{tables}"}
    if not steps:
        files |= {
            "instruction.md": "Write hello into hello.txt.\n",
            "tests/test.sh": 'test "$(cat hello.txt)" = hello && r=1 || r=0\n'
            "echo $r >/logs/verifier/reward.txt\n",
            "solution/solve.sh": "echo hello >hello.txt\n",
        }
    for name in steps:
        files |= {
            f"steps/{name}/instruction.md": f"Write {name}.\n",
            f"steps/{name}/tests/test.sh": f"grep -qx {name} /tmp/done && r=1 || r=0\n"
            "echo $r >/logs/verifier/reward.txt\n",
            f"steps/{name}/solution/solve.sh": f"echo {name} >>/tmp/done\n",
        }
    return files | {path: content for path, content in said.items() if path not in _KEYS}

"""Skills that a task's image has for its agent, and the message that lists them.

A skill is a folder with `SKILL.md`, which begins with its name and description between two lines of
`---`. Agents read the file when they need it.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Final

import yaml

from gymmesh_resource import SandboxHandle

_FILE: Final = "SKILL.md"
_MOST: Final = 100  # skills
_HEAD: Final = 4096  # bytes of a file that may hold its name and description
_LONGEST: Final = 1024  # characters of a description, as the format has it
_LIST_S: Final = 30.0
_TOLD: Final = (
    "These skills may help with the task. Before you use one, read its file, which says how:\n"
)


async def told_skills(sandbox: SandboxHandle, folder: str) -> str:
    """The description of the skills in a folder of the sandbox, for the agent; empty if there are
    none.

    Raises MeshError if the sandbox is lost.
    """
    place = shlex.quote(folder)
    line = (
        f"for f in {place}/*/{_FILE}; do "
        f'[ -f "$f" ] && printf "%s\\0" "$f" && head -c {_HEAD} "$f" | tr -d "\\0" && printf "\\0";'
        " done; true"
    )
    result = await sandbox.exec(line, timeout_s=_LIST_S)
    parts = result.text.split("\0")[:-1]
    found = zip(parts[::2], parts[1::2], strict=False)
    lines = [told for path, text in list(found)[:_MOST] if (told := skill_line(path, text))]
    return _TOLD + "\n".join(lines) if lines else ""


def skill_line(path: str, text: str) -> str:
    """A skill as a line: its name, what it is for, and its file; empty for a file without these.

    text: the beginning of the file.
    """
    before, opened, rest = text.partition("---\n")
    head, closed, _ = rest.partition("\n---")
    if before.strip() or not opened or not closed:
        return ""
    try:
        said = yaml.safe_load(head)
    except yaml.YAMLError:
        return ""
    if not isinstance(said, dict) or not isinstance(said.get("description"), str):
        return ""
    name = said.get("name")
    shown = name if isinstance(name, str) and name else PurePosixPath(path).parent.name
    return f"- {shown}: {' '.join(said['description'].split())[:_LONGEST]} ({path})"

"""The hostile programs of programs.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

_FILE: Final = Path(__file__).with_name("programs.yaml")
#: What a row is judged by unless it says otherwise.
_CHECKS: Final = [{"name": "done", "run": 'test "$(cat done)" = right'}]


class ProgramEnds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome: a stop reason and a reward, or a boundary and a reason."""

    stop: str = ""
    reward: float | None = None
    failed: tuple[str, str] | None = None


class HostileProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program, its row, and the end that its rollout must have; see programs.yaml."""

    name: str
    after: Literal["sandbox", "verdict", "gateway"]
    goes_for: str
    ends: ProgramEnds
    program: str = ""
    same_program_as: str = ""
    agent: str = "coder"
    row: dict[str, Any] = {}
    calls: tuple[int, int] = (1, 1)
    says: str = ""

    def task_row(self, names: dict[str, str]) -> dict[str, Any]:
        """Its row; `names`: what stands for the words in the program."""
        row: dict[str, Any] = {"checks": _CHECKS, **self.row}
        row["responses_create_params"] = {"input": self.program}
        text = msgspec.json.encode(row).decode()
        for name, value in names.items():
            text = text.replace(f"@{name}@", value)
        found: dict[str, Any] = msgspec.json.decode(text)
        return found


def _read() -> dict[str, HostileProgram]:
    found = msgspec.convert(yaml.load(_FILE.read_text(), yaml.CSafeLoader), list[HostileProgram])
    by_name = {one.name: one for one in found}
    assert len(by_name) == len(found)
    for one in found:
        if one.same_program_as:
            program = by_name[one.same_program_as].program
            by_name[one.name] = msgspec.structs.replace(one, program=program)
    return by_name


PROGRAMS: Final = _read()
"""All of them, by name."""

"""Skills that an image has are told to the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymmesh_resource.environments.harbor.skills import skill_line
from gymmesh_responses import text_of
from tests.unit.environments.harbor.made_tasks import NEW, harbor_task
from tests.unit.environments.harbor.test_verdicts import opened
from tests.unit.resource.served import task

HEAD = "---\nname: {}\ndescription: {}\n---\nMore.\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            HEAD.format("pdf", "Reads a PDF.\n  All of it."),
            "- pdf: Reads a PDF. All of it. (/s/a/f)",
        ),
        ("---\ndescription: Reads.\n---\n", "- a: Reads. (/s/a/f)"),
        ("---\nname: pdf\n---\n", ""),
        ("# pdf\n---\ndescription: Reads.\n---\n", ""),
        ("---\n[\n---\n", ""),
        ("---\ndescription: never closed\n", ""),
        ("", ""),
    ],
)
def test_a_skill_is_a_line(text: str, line: str) -> None:
    assert skill_line("/s/a/f", text) == line


async def test_the_skills_of_a_task_follow_its_instruction(tmp_path: Path) -> None:
    files = {
        "environment/skills/pdf/SKILL.md": HEAD.format("pdf", "Reads a PDF."),
        "environment/skills/other/notes.md": "",
    }
    tasks = {
        "skilled": harbor_task(f'{NEW}skills_dir = "skills"\n', **files),
        "none": harbor_task(f'{NEW}skills_dir = "/nowhere"\n'),
    }
    async with opened(tmp_path, tasks) as desk:
        for name, told in (("skilled", 1), ("none", 0)):
            answer = await desk.create(task(harbor=name))
            assert len(answer.items) == told
            if told:
                said = text_of(answer.items[0])
                assert said.endswith("- pdf: Reads a PDF. (skills/pdf/SKILL.md)"), said
            await desk.close(answer.session_id)

"""Values that do not go together are refused with one sentence, which names the way out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import SOURCE, Chart

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: ",".join(case["set"]))
def test_the_sentence_is_exactly_this(chart: Chart, case: dict[str, Any]) -> None:
    sets = [part for key, value in case["set"].items() for part in _set(key, value)]
    said = chart.refusal(case["values"], *sets).splitlines()[-1]
    said = re.sub(r"^Error: execution error at \(gymmesh/templates/validate.yaml:\S+\): ", "", said)
    assert said.removeprefix("- ") == case["says"]


def test_every_refusal_of_the_chart_is_tried() -> None:
    template = (SOURCE / "templates" / "validate.yaml").read_text()
    texts = re.findall(r'fail \(?(?:printf )?"((?:[^"\\]|\\.)*)"', template)
    assert len(texts) == template.count("{{- fail ")
    said = [case["says"] for case in CASES]
    for text in texts:
        pattern = re.sub(r"%[a-z]", ".*", re.escape(text).replace(r"\%", "%"))
        assert any(re.fullmatch(pattern, one) for one in said), text


def _set(key: str, value: Any) -> tuple[str, str]:
    if isinstance(value, str):
        return "--set-string", f"{key}={value}"
    return "--set-json", f"{key}={json.dumps(value)}"

"""What is generated of the schema of rows is fresh, and a new column is one field."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.protos import PROTO_ROOT
from tools.rows.__main__ import fresh, stale
from tools.rows.columns import columns_text
from tools.rows.contract import Contract, ContractError
from tools.rows.page import page_text

FIELD = "  // Annotations of custom agents.\n  repeated rollout.v1.Annotation annotations = 25;\n"


def changed(folder: Path, old: str, new: str) -> Contract:
    """The contract with another text in row.proto."""
    shutil.copytree(PROTO_ROOT / "gymmesh", folder / "gymmesh")
    row = folder / "gymmesh" / "row" / "v1" / "row.proto"
    text = row.read_text()
    assert old in text
    row.write_text(text.replace(old, new))
    return Contract(folder)


def test_what_is_committed_is_what_is_made() -> None:
    made = fresh()
    assert stale(made) == []
    name = "docs/reference/rows.md"
    assert stale(made | {name: made[name] + "more\n"})


def test_a_column_that_a_rollout_has_is_one_field(tmp_path: Path) -> None:
    field = "  // When it ended.\n  fixed64 ended_unix_nano = 40;\n"
    contract = changed(tmp_path, FIELD, FIELD + field)
    assert "| `ended_unix_nano` | number | When it ended. |" in page_text(contract)
    text = columns_text(contract)
    assert "ended_unix_nano: int = 0" in text
    assert "made.ended_unix_nano = rollout.ended_unix_nano" in text


def test_the_page_says_what_form_a_value_has(tmp_path: Path) -> None:
    form = "[(json.v1.field) = {%s}]"
    fields = "".join(
        f"  // One.\n  {kind} field_{number} = {number} {form % options};\n"
        for number, kind, options in (
            (40, "bytes", "bytes: BYTES_FORM_BASE64"),
            (41, "bytes", "bytes: BYTES_FORM_HEX"),
            (42, "bytes", "always: true, bytes: BYTES_FORM_INT32"),
            (43, "bytes", "bytes: BYTES_FORM_FLOAT32"),
            (44, "optional double", "always: true"),
        )
    )
    page = page_text(changed(tmp_path, FIELD, FIELD + fields))
    assert "| `field_40` | text in Base64 |" in page
    assert "| `field_41` | text in hexadecimal digits |" in page
    assert "| `field_42` | list of integers, always |" in page
    assert "| `field_43` | list of numbers; null for a number that is not finite |" in page
    assert "| `field_44` | number or null, always |" in page


def test_a_column_that_is_computed_is_an_argument(tmp_path: Path) -> None:
    field = "  // How sure it is.\n  optional double certainty = 40;\n"
    text = columns_text(changed(tmp_path, FIELD, FIELD + field))
    assert "certainty: float | UnsetType = UNSET," in text


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("  double certainty = 40;\n", "`optional` or written `always`"),
        ("  optional double certainty = 40;\n", "has no comment"),
        ("  // One.\n  oneof kind {\n    string kind_of = 40;\n  }\n", "no oneof"),
    ],
)
def test_what_the_rule_does_not_cover_is_named(tmp_path: Path, field: str, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        changed(tmp_path, FIELD, FIELD + field).rows()

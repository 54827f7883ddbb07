"""A folder for the Hub that was interrupted: what is gone on with, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_data import ExportOptions, Selection, export_hub
from gymmesh_data.exports.writing import LineFile
from tests.handoff.rollouts import rollout_file
from tests.unit.data.rows import read_records


def test_a_folder_goes_on_with_the_files_that_are_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = rollout_file(tmp_path, tasks=12)
    whole, out = tmp_path / "whole" / "sums", tmp_path / "out" / "sums"
    made: list[str] = []
    write = LineFile.write

    def written(file: LineFile, lines: Iterable[bytes], **how: Any) -> int:
        made.append(f"{file.path.parent.name}/{file.path.name}")
        return write(file, lines, **how)

    monkeypatch.setattr(LineFile, "write", written)
    summary = export_hub([source], whole, test=0.5)
    files, made[:] = list(made), []
    with monkeypatch.context() as patch:
        patch.setattr(LineFile, "_write", _out_of_space_for("dpo"))
        with pytest.raises(UserError, match="cannot be written"):
            export_hub([source], out, test=0.5)
    assert not out.exists()
    assert made == files[: files.index("dpo/train.jsonl") + 1]
    with pytest.raises(UserError, match="Resume the export with --resume"):
        export_hub([source], out, test=0.5)
    for test, options in ((0.4, None), (0.5, ExportOptions(Selection(min_reward=0.5)))):
        with pytest.raises(UserError, match="made from other rollouts or with other options"):
            export_hub([source], out, options, test=test, resume=True)
    made.clear()
    assert export_hub([source], out, test=0.5, resume=True) == summary
    assert made == files[files.index("dpo/train.jsonl") :]
    assert _contents(out) == _contents(whole)
    assert [one.name for one in out.parent.iterdir()] == ["sums"]


def test_a_folder_whose_rollouts_changed_meanwhile_starts_anew_only_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = rollout_file(tmp_path), tmp_path / "sums"
    with monkeypatch.context() as patch:
        patch.setattr(LineFile, "_write", _out_of_space_for("sft"))
        with pytest.raises(UserError, match="cannot be written"):
            export_hub([source], out)
    with source.open("a") as file:
        file.write(source.read_text().splitlines()[0].replace("ro-", "ro-more-") + "\n")
    with pytest.raises(UserError, match="made from other rollouts"):
        export_hub([source], out, resume=True)
    note = tmp_path / "sums.part" / "export.json"
    note.write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        export_hub([source], out, resume=True)
    summary = export_hub([source], out, overwrite=True)
    assert len(read_records(out / "rollouts" / "train.jsonl")) == summary.rollouts
    # A folder of that name that is somebody else's.
    (tmp_path / "new.part").mkdir()
    (tmp_path / "new.part" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="not created by an export"):
        export_hub([source], tmp_path / "new", overwrite=True)
    assert (tmp_path / "new.part" / "thesis.txt").read_text() == "mine"
    # One that never had a whole file leaves nothing to go on with.
    with pytest.raises(UserError, match="cannot be read"):
        export_hub([tmp_path / "none.jsonl"], tmp_path / "none")
    assert not (tmp_path / "none.part").exists()


def _out_of_space_for(config: str) -> Any:
    """LineFile._write with a disk that is full when files of a configuration are written."""
    write = LineFile._write

    def failing(file: LineFile, *rest: Any) -> None:
        if file.path.parent.name == config:
            raise OSError(28, "No space left on device")
        write(file, *rest)

    return failing


def _contents(folder: Path) -> dict[str, bytes]:
    files = (one for one in folder.rglob("*") if one.is_file())
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}

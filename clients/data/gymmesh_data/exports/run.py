"""`export`: from rollouts on disk to a file, or a folder, of one format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from gymmesh_client import OutputFiles
from gymmesh_client.problems import UserError, unwritable
from gymmesh_client.safe_writes import OWNER_ONLY, refuse_inputs
from gymmesh_data.exports.draft import NOTE, FolderDraft
from gymmesh_data.exports.format import Format
from gymmesh_data.exports.formats import FORMATS, refuse_suffix
from gymmesh_data.exports.hub import CONFIGS, HUB, card, path_of, selection_of
from gymmesh_data.exports.records import records
from gymmesh_data.exports.summary import ExportOptions, ExportSummary
from gymmesh_data.exports.writing import LineFile
from gymmesh_data.sources import files_of, read_failures, read_rollouts

_WRITE_BYTES: Final = 128 * 1024


def export(
    inputs: Sequence[Path],
    output: Path,
    name: str,
    options: ExportOptions | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
) -> ExportSummary:
    """Write the rollouts of some runs and files in a format.

    Memory does not grow with the rollouts, except 100 bytes per rollout with `distinct`, and 500
    per rollout in a log of Inspect.

    Args:
        inputs: outputs of `gym-cli collect`, or files of such rows.
        output: the file to write; for `hf` a folder.
        name: the name of the format, one of `FORMATS`, or `hf`.
        overwrite: replace an existing output.
        resume: resume an interrupted export; the result is the same as without an interruption.

    Raises:
        UserError: an input is malformed, or the output would overwrite a file.
        ConfigError: a library that the format needs is not installed.
    """
    options = options or ExportOptions()
    if name == HUB:
        return export_hub(inputs, output, options, overwrite=overwrite, resume=resume)
    refuse_suffix(output, name)
    return _export(inputs, output, FORMATS[name], options, overwrite=overwrite, resume=resume)


def _export(
    inputs: Sequence[Path],
    output: Path,
    form: Format,
    options: ExportOptions,
    *,
    overwrite: bool = False,
    resume: bool = False,
) -> ExportSummary:
    summary = ExportSummary()
    if form.needs is not None:
        form.needs.require("an export of this format")
    file = LineFile(output)
    written = (file.path, file.part, file.checkpoint, file.spool, file.packed)
    refuse_inputs(written, {"the export": files_of(inputs)})
    file.refuse(overwrite=overwrite, resume=resume)

    def lines() -> Iterator[bytes]:
        rollouts = read_rollouts(inputs)
        failed = read_failures(inputs)
        made = records(rollouts, form, options, summary, file.spool, failed)
        for some in _together(made):
            summary.records += some.count(b"\n")
            yield some

    pack = form.pack
    packed = None if pack is None else lambda rows, target: pack(rows, target, summary.losses)
    file.write(lines(), resume=resume, pack=packed)
    return summary


def export_hub(
    inputs: Sequence[Path],
    output: Path,
    options: ExportOptions | None = None,
    *,
    test: float = 0.0,
    overwrite: bool = False,
    resume: bool = False,
) -> ExportSummary:
    """Write a folder for the Hugging Face Hub: a file for each configuration and split, and a card.

    The folder is written next to `output` and renamed to `output` at the end.

    Args:
        test: the share of the tasks that become the split `test`, with all their rollouts.
        resume: resume an interrupted export: finished files are kept, the other files are written.
            Refused if the size or the time of an input has changed.

    Raises: as `export`.
    """
    options = options or ExportOptions()
    refuse_suffix(output, HUB)
    _refuse_folder(output, overwrite=overwrite)
    files = [one.resolve() for one in files_of(inputs)]
    draft = FolderDraft(output, _made_of(inputs, options, test))
    for folder in (output, draft.path):
        if any(one.is_relative_to(folder.resolve()) for one in files):
            raise UserError(
                f"{folder} holds inputs of the export and would be replaced. Choose another "
                "--output"
            )
    try:
        draft.begin(overwrite=overwrite, resume=resume)
        total = _fill(inputs, draft, options, test)
        draft.publish()
    except OSError as error:
        raise unwritable(output, error) from None
    finally:
        draft.drop_if_empty()
    return total


def _refuse_folder(output: Path, *, overwrite: bool) -> None:
    """Refuse to replace what is there, unless told to and an export wrote it. Raises UserError."""
    if not output.exists():
        return
    if not output.is_dir():
        raise UserError(
            f"{output} already exists and is a file: move it, or choose another --output"
        )
    made = {"README.md", NOTE, *CONFIGS}
    foreign = sorted(one.name for one in output.iterdir() if one.name not in made)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UserError(
            f"{output} already exists and holds files that no export wrote ({foreign[0]}{more}), "
            "so --overwrite does not replace the folder. Move these files, or choose another "
            "--output"
        )
    if not overwrite:
        raise UserError(
            f"{output} already exists: replace it with --overwrite, or choose another --output"
        )


def _made_of(inputs: Sequence[Path], options: ExportOptions, test: float) -> Any:
    """What a folder's files depend on: the options, and the rollouts (sizes and times of files)."""
    rows = list[list[str | int]]()
    for path in inputs:
        files = OutputFiles(path)
        for one in (*files.all_shards(), files.journal):
            with suppress(FileNotFoundError):
                about = one.stat()
                rows.append([str(one.absolute()), about.st_size, about.st_mtime_ns])
    asked = asdict(options)
    asked["selection"]["environments"] = sorted(options.selection.environments)
    return {"rollouts": rows, "options": asked, "test": test}


def _fill(
    inputs: Sequence[Path], draft: FolderDraft, options: ExportOptions, test: float
) -> ExportSummary:
    """Write the files of a folder, and its card. What came of them; rollouts are counted once."""
    splits = {"train": (0.0, 1.0 - test), "test": (1.0 - test, 1.0)} if test else {"train": None}
    files, total = dict[tuple[str, str], ExportSummary](), ExportSummary()
    for config, (form, _) in CONFIGS.items():
        chosen = selection_of(form, options)
        for split, part in splits.items():
            path = path_of(config, split)
            some = replace(options, selection=chosen, part=part)
            summary = draft.finished(path)
            if summary is None:
                summary = _export(inputs, draft.path / path, form, some, overwrite=True)
                draft.finish(path, summary)
            total.records += summary.records
            if config == "rollouts":
                total.rollouts += summary.rollouts
            for what, count in summary.left_out.items():
                total.left_out[f"{what} ({config})"] += count
            for what, count in summary.losses.items():
                total.losses[f"{what} ({config})"] += count
            for what, count in summary.changed.items():
                total.changed[f"{what} ({config})"] += count
            files[config, split] = summary
    readme = draft.path / "README.md"
    readme.touch(OWNER_ONLY)
    text = card(draft.output.name, files, options)
    readme.write_text(text, encoding="utf-8")
    return total


def _together(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines by the block; the same lines make the same blocks, so that an export can be resumed."""
    held, size = list[bytes](), 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _WRITE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)

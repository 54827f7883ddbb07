"""`export`: from rollouts on disk to a file of one format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gymmesh_client import OutputFiles
from gymmesh_client.replacing import refuse_inputs
from gymmesh_data.exports.formats import FORMATS
from gymmesh_data.exports.records import records
from gymmesh_data.exports.summary import ExportOptions, ExportSummary
from gymmesh_data.exports.writing import LineFile
from gymmesh_data.sources import read_rollouts


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

    Memory does not grow with the rollouts, but for 100 bytes for each with `distinct`.

    Args:
        inputs: outputs of `gym-cli collect`, or files of such rows.
        name: of the format, one of `FORMATS`.
        overwrite: replace an output that is there.
        resume: go on with an export that was interrupted; the result is the same as without.

    Raises:
        UserError: an input is malformed, or the output would write over something.
    """
    form, options, summary = FORMATS[name], options or ExportOptions(), ExportSummary()
    file = LineFile(output)
    written = (file.path, file.part, file.checkpoint, file.spool)
    refuse_inputs(written, {"the export": _files_of(inputs)})
    file.refuse(overwrite=overwrite, resume=resume)

    def lines() -> Iterator[bytes]:
        rollouts = read_rollouts(inputs)
        for some in records(rollouts, form, options, summary, file.spool):
            summary.records += some.count(b"\n")
            yield some

    file.write(lines(), resume=resume)
    return summary


def _files_of(inputs: Sequence[Path]) -> list[Path]:
    """All files that belong to the inputs: of a run, its journal and the rest, too."""
    found = list(inputs)
    for path in inputs:
        files = OutputFiles(path)
        found += [one for one in files.everything() if one.exists()]
    return found

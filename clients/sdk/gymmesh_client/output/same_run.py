"""Whether an output is resumed as it was begun: the same run, shard and files."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from gymmesh_client.log import latest_session
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.run_file import read_run_file
from gymmesh_client.tasks import Shard, shard_of


def check_collected(files: OutputFiles, session: Mapping[str, Any]) -> None:
    """Raises UserError if `gym-cli collect` would resume what another program began, whose tasks
    and model it does not know.
    """
    if session.get("asked"):
        return
    again = "with its program, such as TrainerCollector(…, output=…, resume=True)"
    if "reverified" in read_run_file(files.run):
        again = "with gym-cli reverify --resume"
    raise UserError(
        f"{files.shown} has a run that gym-cli collect did not start. Resume this run {again}, or "
        "choose another --output"
    )


def check_same_run(
    files: OutputFiles, session: Mapping[str, Any], run_id: str, shard: Shard | None
) -> None:
    """Raises UserError if a different run or shard would be resumed, or a run as one of its shards.
    `run_id` is the user's option; empty: not given.
    """
    is_of = session.get("run_id")
    if run_id and is_of != run_id:
        raise UserError(
            f"{files.shown} belongs to run {is_of}, not {run_id}. Remove --run-id, or choose "
            "another --output"
        )
    was = shard_of(session)
    if was == shard:
        return
    if was is None:
        raise UserError(
            f"{files.shown} was started without --shard and holds all tasks. Remove --shard, or "
            "choose another --output"
        )
    asked = "without --shard" if shard is None else f"as {shard}"
    raise UserError(
        f"{files.shown} is shard {was} of its run and can't be resumed {asked}. Use --shard "
        f"{was}, or choose another --output"
    )


def check_new_run(files: OutputFiles, run_id: str) -> None:
    """Raises UserError if a run would start again under its old id: services may still know its
    rollouts.
    """
    session = None
    with contextlib.suppress(UserError):  # one that is damaged is replaced all the same
        session = latest_session(files)
    if session is not None and session.get("run_id") == run_id:
        raise UserError(
            f"{files.shown} already holds run {run_id}. To replace this run, pass a different "
            "--run-id with --overwrite. To continue this run, use --resume instead of --overwrite"
        )


def check_same_layout(files: OutputFiles, session: Mapping[str, Any]) -> None:
    """Refuse to go on with other files than the run was begun with. Raises UserError."""
    was, shards = bool(session.get("zstd")), session.get("shard_rows")
    if files.compressed and not was:
        raise UserError(
            f"{files.rows} was started without compression, and a resumed run can't "
            "change the compression; remove --zstd"
        )
    if files.shard_rows is not None and files.shard_rows != shards:
        so_far = "in one file" if shards is None else f"with --shard-rows {shards}"
        raise UserError(
            f"{files.rows} was started {so_far}, and a resumed run can't change the rows per "
            f"file; remove --shard-rows {files.shard_rows}"
        )

"""What the streams of a sandbox service come to, once their pieces are put together. Pure.

A process: `{process_id, stdout, stderr, exit}`; files: `{files: [{content, info} or {error}]}`; an
archive: `{members: […]}` as `archives.unpack` shows them. None for other streams.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_conformance.cases.archives import unpack
from gymmesh_conformance.cases.matching import to_plain
from gymmesh_conformance.errors import from_status


def gathered(responses: Sequence[Message]) -> dict[str, Any] | None:
    """What the responses of a stream come to."""
    first = responses[0] if responses else None
    if isinstance(first, sandbox_pb2.ExecResponse | sandbox_pb2.WaitProcessResponse):
        return _process([one.event for one in responses])  # type: ignore[attr-defined]  # of one kind
    if isinstance(first, files_pb2.ReadFilesResponse):
        return {"files": _files(responses)}
    if isinstance(first, files_pb2.ReadArchiveResponse):
        try:
            return {"members": unpack(b"".join(one.content for one in responses))}  # type: ignore[attr-defined]  # of one kind
        except ValueError as exc:
            return {"members": str(exc)}
    return None


def _process(events: Sequence[process_pb2.ProcessEvent]) -> dict[str, Any]:
    process: dict[str, Any] = {"process_id": ""}
    process["stdout"] = _text(b"".join(event.stdout for event in events))
    process["stderr"] = _text(b"".join(event.stderr for event in events))
    for event in events:
        if event.HasField("started"):
            process["process_id"] = event.started.process_id
        elif event.HasField("exit"):
            process["exit"] = to_plain(event.exit)
    return process


def _files(responses: Sequence[Any]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = []
    contents: list[bytes] = []
    for piece in responses:
        while len(files) <= piece.index:
            files.append({})
            contents.append(b"")
        if piece.HasField("content"):
            contents[piece.index] += piece.content
        elif piece.HasField("info"):
            files[piece.index]["info"] = to_plain(piece.info)
        elif piece.HasField("error"):
            error = from_status(piece.error)
            files[piece.index]["error"] = {"code": error.code.name, "reason": error.reason}
    for file, content in zip(files, contents, strict=True):
        if "info" in file:
            file["content"] = _text(content)
    return files


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()

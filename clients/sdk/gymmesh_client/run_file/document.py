"""The content of NAME.run.json. Pure, except for the names of this process and machine.

The file is one JSON object. `sessions` has an entry for each session of a collector. The other keys
are those of the last session, and `counts` is of the whole run.
"""

from __future__ import annotations

import math
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import Message

from gymmesh_client.run_file.secrets import without_secrets
from gymmesh_runtime.contract import CONTRACT_VERSION

FORMAT: Final = 1
RUNNING: Final = "running"
FINISHED: Final = "finished"
ENDED_EARLY: Final = "ended early"
_PACKAGES: Final = ("gymmesh", "grpcio", "protobuf")
# What a caller may say of a run, each a key of the document.
_SAID: Final = ("configuration", "options", "tasks", "seeds", "services", "versions_seen")
# Said by a session for the next one; a run that was joined of shards has none.
_HANDED_ON: Final = ("trackers",)
_ADDED_TO: Final = ("counts", "tasks", "seeds")
# Lists by kind and name, to which a session and a shard add what they met.
_BY_NAME: Final = ("services", "versions_seen")


@dataclass(slots=True)
class RunDocument:
    """The document, as it grows. `content` are JSON values, with no secret in them."""

    content: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def begun(run_id: str, session: Mapping[str, Any], earlier: Mapping[str, Any]) -> RunDocument:
        """The document of a run that a collector begins or resumes, from its journal and from the
        previous document; the latter may be empty.
        """
        now = said_time()
        entry = {
            "session": session["session"],
            "started_at": now,
            "ended_at": None,
            "host": host(),
            "versions": versions(),
            **({"notices": session["notices"]} if session.get("notices") else {}),
        }
        kept = {key: earlier[key] for key in (*_SAID, *_HANDED_ON) if key in earlier}
        return RunDocument(
            {
                "run_id": run_id,  # first, by which the file is known as a run's
                "format": FORMAT,
                "state": RUNNING,
                "started_at": earlier.get("started_at") or now,
                "updated_at": now,
                "ended_at": None,
                "identity": dict(session["identity"]),
                "repeats": session["repeats"],
                "shard": session.get("shard"),
                **({"asked": session["asked"]} if session.get("asked") else {}),
                "versions": versions(),
                **kept,
                "sessions": [*_list_of(earlier.get("sessions")), entry],
                "counts": earlier.get("counts") or {},
            }
        )

    def say(self, **parts: Any) -> None:
        """Update some keys, without secrets. Values with names or counts are merged into the
        existing ones; all other values are replaced.
        """
        for key, value in parts.items():
            plain = without_secrets(_plain(value))
            if key in _ADDED_TO:
                plain = self.content.get(key, {}) | plain
            elif key in _BY_NAME:
                plain = _all_of([self.content.get(key, {}), plain])
            self.content[key] = plain
        self.content["updated_at"] = said_time()

    def end(self, ended: Mapping[str, Any]) -> None:
        """The session is over. `ended`: what the journal says of the end."""
        why = str(ended.get("why") or "")
        early = bool(ended.get("interrupted"))
        now = said_time()
        counts = {key: ended[key] for key in ("completed", "failed") if key in ended}
        self.say(counts=counts)
        self.content |= {
            "state": ENDED_EARLY if early else FINISHED,
            "ended_at": now,
            "updated_at": now,
        }
        self.content["sessions"][-1] |= {"ended_at": now, "ended_early": why if early else ""}


def merged(whole: RunDocument, parts: Sequence[Mapping[str, Any]]) -> RunDocument:
    """The document of a run that is joined from its shards': `whole` is that of the joined run,
    just begun; a shard's that is missing is empty.
    """
    known = [part for part in parts if part]
    sessions = [
        {"shard": part.get("shard") or {"index": place}} | entry
        for place, part in enumerate(parts)
        for entry in _list_of(part.get("sessions"))
    ]
    content = whole.content
    for part in known:
        for key in _SAID:
            if key in part and key not in content:
                content[key] = part[key]
    for key in _BY_NAME:
        if said := [part[key] for part in known if isinstance(part.get(key), dict)]:
            content[key] = _all_of(said)
    starts = [str(part["started_at"]) for part in known if part.get("started_at")]
    content["started_at"] = min(starts, default=content["started_at"])
    content["sessions"] = sessions
    return whole


def versions() -> dict[str, str]:
    """The versions of what this process runs on."""
    found = {"contract": CONTRACT_VERSION, "python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def host() -> dict[str, Any]:
    """This machine and process."""
    return {
        "name": socket.gethostname(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "pid": os.getpid(),
    }


def said_time() -> str:
    """Now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _all_of(services: list[dict[str, Any]]) -> dict[str, Any]:
    """The services of all shards: what they say of a name, each description once."""
    found: dict[str, Any] = {}
    for one in services:
        for kind, names in one.items():
            for name, said in names.items() if isinstance(names, dict) else ():
                known = found.setdefault(kind, {}).setdefault(name, [])
                known += [entry for entry in said if entry not in known]
    return found


def _list_of(said: Any) -> list[Any]:
    return said if isinstance(said, list) else []


def _plain(value: Any) -> Any:
    """A value as JSON has it; a dataclass as its fields, infinity as null."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Message):
        return json_format.MessageToDict(value, preserving_proto_field_name=True)
    if hasattr(value, "__dataclass_fields__"):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return type(value).__name__ if callable(value) else str(value)

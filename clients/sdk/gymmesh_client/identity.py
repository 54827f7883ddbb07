"""What a run is made of, so that it is not gone on with as something else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from gymmesh_client.problems import UserError

_CHUNK: Final = 1 << 20

CHANGES: Final = {
    "tasks": "the tasks",
    "config": "the configuration",
    "version": "the version of gymmesh",
}
"""What may change between a run and its resumption: the word to accept it by, and its name."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What a run is made of.

    Attributes:
        tasks: SHA-256 (hex) of the task file.
        config: SHA-256 (hex) of the configuration, credentials and endpoints left out.
        version: of gymmesh; empty where it is not known.
    """

    tasks: str
    config: str
    version: str = ""

    @staticmethod
    def of(tasks: Path, config: Mapping[str, Any]) -> RunIdentity:
        """The identity of a task file and a configuration in JSON values, secrets left out.

        Raises:
            UserError: the task file cannot be read.
        """
        digest = hashlib.sha256()
        try:
            with tasks.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UserError(f"{tasks}: cannot be read: {reason}") from None
        written = json.dumps(config, sort_keys=True).encode()
        return RunIdentity(
            digest.hexdigest(), hashlib.sha256(written).hexdigest(), _installed_version()
        )

    @staticmethod
    def of_session(session: Mapping[str, Any]) -> RunIdentity:
        """The identity that a journal's session says; what it does not say is empty."""
        said = session.get("identity") or {}
        return RunIdentity(*(str(said.get(name, "")) for name in CHANGES))

    def changes(self, was: RunIdentity) -> list[str]:
        """The keys of CHANGES in which two identities differ; what is not known differs not."""
        return [
            name
            for name in CHANGES
            if getattr(self, name) != getattr(was, name)
            and (name != "version" or (self.version and was.version))
        ]

    def check(self, was: RunIdentity, output: Path, accepted: Collection[str] = ()) -> None:
        """Refuse to go on with a run that was another one, unless each change is accepted.

        Raises:
            UserError: something changed that is not accepted.
        """
        changed = [name for name in self.changes(was) if name not in accepted]
        if changed:
            names = [CHANGES[name] for name in changed]
            if "version" in changed:
                names[-1] += f" ({was.version}, now {self.version})"
            options = " ".join(f"--accept-change {name}" for name in changed)
            raise UserError(
                f"{output}: cannot be resumed, because {' and '.join(names)} changed since; "
                f"use the same, choose another --output, or go on all the same with {options}"
            )


def _installed_version() -> str:
    try:
        return version("gymmesh")
    except PackageNotFoundError:
        return ""

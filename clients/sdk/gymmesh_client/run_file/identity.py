"""The inputs of a run, so that a run is not resumed with different ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gymmesh_client.log_records import FORMAT
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.run_file import task_lines
from gymmesh_client.run_file.changes import changes, described
from gymmesh_client.run_file.document import versions
from gymmesh_client.run_file.environment_versions import (
    Versions,
    source_changes,
    version_changes,
    versions_of_json,
    versions_to_json,
)
from gymmesh_client.run_file.file import read_run_file
from gymmesh_client.run_file.secrets import without_secrets
from gymmesh_client.run_file.task_lines import TaskLines

CHANGES: Final = {
    "tasks": "the tasks",
    "config": "the configuration",
    "version": "the version of gymmesh",
    "environments": "the version of an environment or its verifier",
}
"""What may change between a run and its resumption: the word to accept it by, and its name."""
_TEXTS: Final = ("tasks", "config", "version")


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What the digests of an identity were made from, so that a change can be named."""

    path: Path  # the task file
    lines: TaskLines
    configuration: dict[str, Any]  # JSON values, secrets left out


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The inputs of a run.

    Attributes:
        tasks: SHA-256 (hex) of the task file.
        config: SHA-256 (hex) of the configuration, without credentials and endpoints.
        version: the version of gymmesh; empty if unknown.
        environments: the versions of the tasks' environments. Unknown versions are missing:
            environments that did not answer, or that a remote agent uses.
        made_of: the data from which the digests were computed; None if not available. Not part of
            the identity.
    """

    tasks: str
    config: str
    version: str = ""
    environments: Versions = field(default_factory=dict)
    made_of: MadeOf | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(tasks: Path, config: Mapping[str, Any]) -> RunIdentity:
        """The identity of a task file and a configuration in JSON values, without secrets.

        Raises:
            UserError: the task file cannot be read.
        """
        lines = TaskLines.of(tasks)
        written = json.dumps(config, sort_keys=True).encode()
        return RunIdentity(
            lines.sha256,
            hashlib.sha256(written).hexdigest(),
            versions().get("gymmesh", ""),
            made_of=MadeOf(tasks, lines, without_secrets(json.loads(written))),
        )

    @staticmethod
    def of_session(session: Mapping[str, Any]) -> RunIdentity:
        """The identity that a journal's session recorded; values that it lacks are empty."""
        said = session.get("identity") or {}
        tasks, config, version = (str(said.get(name, "")) for name in _TEXTS)
        return RunIdentity(tasks, config, version, versions_of_json(said.get("environments")))

    def after(self, was: RunIdentity) -> RunIdentity:
        """This identity with the environments that only an earlier session knew."""
        return replace(self, environments={**was.environments, **self.environments})

    def said(self) -> dict[str, Any]:
        """As a journal's session says it."""
        texts = {name: getattr(self, name) for name in _TEXTS}
        known = versions_to_json(self.environments)
        return texts | ({"environments": known} if known else {})

    def changes(self, was: RunIdentity) -> list[str]:
        """The keys of CHANGES in which two identities differ. Unknown values are not treated as
        different.
        """
        changed = [
            name
            for name in _TEXTS
            if getattr(self, name) != getattr(was, name)
            and (name != "version" or (self.version and was.version))
        ]
        if version_changes(was.environments, self.environments):
            changed.append("environments")
        return changed

    def check(
        self,
        was: RunIdentity,
        files: OutputFiles,
        accepted: Collection[str] = (),
        *,
        in_python: bool = False,
    ) -> list[str]:
        """Refuse to resume a run with other inputs, unless each change is accepted.

        in_python: whether the message names settings of a collector, not options of a command.

        Returns notes for the user about the resumed run: each accepted change, and environments
        whose source files changed under the same version.

        Raises:
            UserError: an input changed, and the change is not accepted.
        """
        changes = self.changes(was)
        changed = [name for name in changes if name not in accepted]
        if changed:
            names = " and ".join(_told(files, self, was, name) for name in changed)
            accept = " ".join(f"--accept-change {name}" for name in changed)
            output = "--output"
            if in_python:
                accept, output = f"accept_change={(*accepted, *changed)!r}", "output"
            raise UserError(
                f"{files.rows} can't be resumed: {names} changed. Undo the change, choose "
                f"another {output}, or resume anyway with {accept}"
            )
        notices = [f"resumed although {_told(files, self, was, name)} changed" for name in changes]
        return notices + [
            f"the source of environment {name!r} changed since the run started, but its version "
            "did not change. If tools or verdicts changed, increase the class's `version`"
            for name in source_changes(was.environments, self.environments)
        ]


def session_info(
    files: OutputFiles, run_id: str, identity: RunIdentity, repeats: int, skipped: int
) -> dict[str, Any]:
    """What the journal's first session says of a run."""
    return {
        "format": FORMAT,
        "run_id": run_id,
        "session": 1,
        "identity": identity.said(),
        "repeats": repeats,
        "skipped": skipped,
        "shard_rows": files.shard_rows,
        "zstd": files.compressed,
    }


def _told(files: OutputFiles, now: RunIdentity, was: RunIdentity, name: str) -> str:
    """The name of a change, with what changed where that is known."""
    what = _what_changed(files, now, was, name)
    return f"{CHANGES[name]} ({what})" if what else CHANGES[name]


def _what_changed(files: OutputFiles, now: RunIdentity, was: RunIdentity, name: str) -> str:
    """What changed in one of CHANGES, as a clause; empty where it is not known. What stands beside
    the run counts only if it is of what the run was.
    """
    if name == "version":
        return f"{was.version}, now {now.version}"
    if name == "environments":
        return "; ".join(version_changes(was.environments, now.environments))
    made_of = now.made_of
    if made_of is None:
        return ""
    if name == "tasks":
        lines = TaskLines.read(files.task_lines)
        if lines is None or lines.sha256 != was.tasks:
            return ""
        return task_lines.described(lines, made_of.lines, made_of.path)
    identity = read_run_file(files.run).get("identity")
    if not isinstance(identity, dict) or identity.get("config") != was.config:
        return ""
    found = changes(identity.get("configuration"), made_of.configuration)
    return described(found) if found else "a secret value that is not kept"

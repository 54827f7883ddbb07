"""The versions of environments and of their verifiers, as a run's identity holds them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymmesh.resource.v1 import resource_pb2


@dataclass(frozen=True, slots=True, order=True)
class EnvironmentVersion:
    """What an instance of an environment says of itself.

    Attributes:
        version: of tools and verdicts; verifier_version: of the verdicts alone.
        source: SHA-256 (hex) over its own source files; empty where there are none.
    """

    version: str
    verifier_version: str
    source: str = ""

    @staticmethod
    def of(about: resource_pb2.GetEnvironmentResponse) -> EnvironmentVersion:
        """The version of an instance, by its description."""
        verifier = about.verifier_version or about.version
        return EnvironmentVersion(about.version, verifier, about.source_digest.hex())

    def __str__(self) -> str:
        if self.verifier_version == self.version:
            return self.version
        return f"{self.version} with verifier {self.verifier_version}"


Versions: TypeAlias = Mapping[str, frozenset[EnvironmentVersion]]
"""By the environment's name those of all its instances; one, but for rolling upgrades."""


def versions_of_json(said: Any) -> Versions:
    """What `versions_to_json` wrote; empty where it is something else."""
    if not isinstance(said, dict):
        return {}
    return {
        str(name): frozenset(
            EnvironmentVersion(*(str(one.get(key, "")) for key in EnvironmentVersion.__slots__))
            for one in instances
            if isinstance(one, dict)
        )
        for name, instances in said.items()
        if isinstance(instances, list)
    }


def versions_to_json(versions: Versions) -> dict[str, list[dict[str, str]]]:
    """As a journal's session holds them."""
    return {
        name: [
            {key: getattr(one, key) for key in EnvironmentVersion.__slots__}
            for one in sorted(instances)
        ]
        for name, instances in sorted(versions.items())
    }


def version_changes(was: Versions, now: Versions) -> list[str]:
    """Environments whose declared versions differ, each as a clause; those that only one side knows
    do not differ.
    """
    return [
        f"{name} was {_named(was[name])}, now {_named(now[name])}"
        for name in sorted(was.keys() & now.keys())
        if _declared(was[name]) != _declared(now[name])
    ]


def source_changes(was: Versions, now: Versions) -> list[str]:
    """Names of environments whose source files changed while their declared versions did not."""
    return [
        name
        for name in sorted(was.keys() & now.keys())
        if _declared(was[name]) == _declared(now[name])
        and _sources(was[name])
        and _sources(now[name])
        and not _sources(now[name]) <= _sources(was[name])
    ]


def _declared(instances: Iterable[EnvironmentVersion]) -> set[tuple[str, str]]:
    return {(one.version, one.verifier_version) for one in instances}


def _sources(instances: Iterable[EnvironmentVersion]) -> set[str]:
    return {one.source for one in instances if one.source}


def _named(instances: Iterable[EnvironmentVersion]) -> str:
    return " and ".join(sorted({f"version {one}" for one in instances}))

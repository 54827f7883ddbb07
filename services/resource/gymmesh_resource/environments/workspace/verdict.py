"""The reward of a workspace: the weighted mean of its checks' scores. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gymmesh_resource import Component, Verdict
from gymmesh_resource.environments.workspace.commands import CheckResult
from gymmesh_resource.environments.workspace.row import WorkspaceCheck


class WorkspaceRefused(Exception):
    """The policy left what no verdict can look at, such as too much; that earns nothing."""


def verdict_of(
    checks: Mapping[str, WorkspaceCheck],
    results: Mapping[str, CheckResult],
    removed: Sequence[str] = (),
) -> Verdict:
    """The verdict. Weights count in proportion, so that all checks passed are a reward of 1.

    removed: links of the workspace that led to the tests.
    """
    whole = math.fsum(check.weight for check in checks.values())
    components = {
        name: Component(results[name].score, check.weight / whole) for name, check in checks.items()
    }
    for name, result in results.items():
        components |= {
            f"{name}.{detail}": Component(value, 0.0) for detail, value in result.details.items()
        }
    reward = math.fsum(one.value * (one.weight or 0.0) for one in components.values())
    evidence: dict[str, object] = {
        "checks": {
            name: {"score": one.score, "note": one.note, "output": one.output}
            for name, one in results.items()
        }
    }
    if removed:
        evidence["removed_links"] = list(removed)
    return Verdict(min(reward, 1.0), components, evidence, _explained(results))


def _explained(results: Mapping[str, CheckResult]) -> str:
    failed = {name: one for name, one in results.items() if one.score < 1.0}
    if not failed:
        return "all checks passed" if len(results) > 1 else "the check passed"
    name, first = next(iter(failed.items()))
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return (
        f"{len(results) - len(failed)} of {len(results)} checks passed; {name} {first.note}{more}"
    )

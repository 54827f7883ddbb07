"""The sandbox suite reaches every part of the contract: fields, capabilities and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_conformance.cases import Tag, load_cases
from gymmesh_conformance.services import methods, rpc

#: Request fields that no case sets, and why.
_UNSET_FIELDS: Final[Mapping[str, str]] = {
    "CreateSandboxRequest.attempt": "goes to logs alone",
    "CreateSandboxRequest.start_timeout_s": "no image of the suite starts slowly",
    "ForkSandboxRequest.ttl_s": "as that of CreateSandbox",
    "ListSandboxesRequest.page_size": "by `pages`",
    "ListSandboxesRequest.page_token": "by `pages`",
    "ListFilesRequest.page_token": "by `pages`",
}
#: Reasons that no case expects, and why.
_UNSEEN_REASONS: Final[Mapping[str, str]] = {
    "SANDBOX_LIMIT": "wants a service of few places to itself",
    "SANDBOX_START_TIMEOUT": "no image of the suite starts slowly",
}
#: Capabilities without a case that needs them, or without one that they are refused in, and why.
_ONE_SIDED: Final[Mapping[str, str]] = {
    "builds": "the build's base image is the backend's own",
    "fetches": "there may be no registry",
    "cpu": "a share of a processor is not seen in a short time",
    "thread_usage": "without it `threads` is empty",
    "adapts": "says only that `places` changes",
    "networks": "by the kinds",
    "relay_ports": "the suite has no service that a relay could lead to",
}


def _steps(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for step in steps:
        yield step
        yield from _steps(step.get("together", []))
        yield from _steps([step[key] for key in ("running", "refused") if key in step])


def _all_steps() -> list[dict[str, Any]]:
    return [step for case in load_cases("sandbox") for step in _steps(case.steps)]


def _set_fields() -> set[str]:
    found = set()
    for step in _all_steps():
        name = step.get(
            "call", step.get("pages", "sandbox.CreateSandbox" if "open" in step else "")
        )
        if not name:
            continue
        request = rpc(name).request_class.DESCRIPTOR.name
        fields = [*step.get("request", {}), *step.get("set", {})]
        fields += ["sandbox_id", "lease", "request_id"] if "in" in step else []
        fields += ["request_id"] if "open" in step else []
        found |= {f"{request}.{one}" for one in fields}
    return found


def test_every_request_field_is_set_in_a_case() -> None:
    known = {
        f"{one.request_class.DESCRIPTOR.name}.{field.name}"
        for one in methods(rpc("sandbox.GetService").full_service)
        for field in one.request_class.DESCRIPTOR.fields
    }
    assert known - _set_fields() == set(_UNSET_FIELDS)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, Tag):
        yield from _texts(node.value)
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str):
        yield node


def test_every_reason_is_expected_in_a_case() -> None:
    known = {
        name.removeprefix("ERROR_REASON_")
        for name in errors_pb2.ErrorReason.DESCRIPTOR.values_by_name
        if name.startswith("ERROR_REASON_SANDBOX_")
    }
    expected = {text for step in _all_steps() for text in _texts(step.get("expect", {}))}
    assert known - expected == set(_UNSEEN_REASONS)


@pytest.mark.parametrize(
    "name", [one.name for one in sandbox_pb2.Capabilities.DESCRIPTOR.fields if one.name]
)
def test_a_capability_is_offered_or_refused(name: str) -> None:
    needs = {need for case in load_cases("sandbox") for need in case.needs}
    assert ({name, f"not {name}"} <= needs) is (name not in _ONE_SIDED)


def test_lists_of_exceptions_are_right() -> None:
    fields = sandbox_pb2.Capabilities.DESCRIPTOR.fields_by_name
    assert set(_ONE_SIDED) <= set(fields)

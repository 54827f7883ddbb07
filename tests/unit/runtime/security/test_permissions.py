"""The table of permissions is whole, and the decision is what it says."""

from __future__ import annotations

import importlib
import pkgutil
from typing import get_args

import pytest

import gymmesh
from gymmesh.access.v1 import access_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.security.audit import ACTIONS
from gymmesh_runtime.security.config import Permission
from gymmesh_runtime.security.identity import Identity
from gymmesh_runtime.security.permissions import permission_of, refusal_of

RUN = "gymmesh.agent.v1.AgentService/RunRollout"


def contract() -> set[str]:
    """Every method of every service of the contract."""
    found = set()
    for module in pkgutil.walk_packages(gymmesh.__path__, "gymmesh."):
        if module.name.endswith("_pb2"):
            described = importlib.import_module(module.name).DESCRIPTOR
            for service in described.services_by_name.values():
                found |= {f"{service.full_name}/{one.name}" for one in service.methods}
    return found


def test_every_method_of_the_contract_takes_one_permission() -> None:
    takes = {method: permission_of(method) for method in contract()}
    assert len(takes) > 25
    assert set(takes.values()) == set(get_args(Permission))


def test_the_configuration_has_the_permissions_of_the_contract() -> None:
    values = access_pb2.Permission.DESCRIPTOR.values[1:]
    named = {value.name.removeprefix("PERMISSION_").lower() for value in values}
    assert named == set(get_args(Permission))


@pytest.mark.parametrize(
    ("method", "takes"),
    [
        (RUN, "collect"),
        ("gymmesh.run.v1.RunService/ControlRun", "control"),
        # The example tasks of an environment come with their answers.
        ("gymmesh.resource.v1.ResourceService/ListTasks", "serve"),
        # The right answers: no policy, and no agent, may have them.
        ("gymmesh.verify.v1.AuditService/GetExpected", "audit"),
        # On the mux, each call is decided by itself.
        ("gymmesh.mux.v1.MuxService/Exchange", "observe"),
        ("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "observe"),
        ("gymmesh.run.v1.RunService/Nothing", ""),
        ("gymmesh.nothing.v1.RunService/ListRuns", ""),
        ("RunRollout", ""),
        ("", ""),
    ],
)
def test_permissions_that_matter(method: str, takes: str) -> None:
    assert permission_of(method) == takes


def test_every_action_takes_more_than_a_look() -> None:
    assert {permission_of(method) for method in ACTIONS} == {"control", "register"}


@pytest.mark.parametrize("method", sorted(contract()))
def test_who_may_and_who_may_not(method: str) -> None:
    takes = permission_of(method)
    for permission in get_args(Permission):
        refused = refusal_of(Identity("ann", frozenset((permission,))), method)
        if permission == takes:
            assert refused is None
            continue
        assert refused is not None
        assert refused.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED
        assert refused.metadata == {"method": method}
        assert f"requires the permission '{takes}'" in refused.message


def test_a_stranger_may_nothing() -> None:
    refused = refusal_of(None, RUN)
    assert refused is not None
    assert refused.reason == errors_pb2.ERROR_REASON_CREDENTIAL_INVALID


def test_what_is_not_in_the_table_nobody_may() -> None:
    everything = Identity("root", frozenset(get_args(Permission)))
    refused = refusal_of(everything, "other.v1.Service/Method")
    assert refused is not None
    assert refused.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED

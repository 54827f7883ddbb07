"""The table of permissions is whole, and the decision is what it says."""

from __future__ import annotations

import importlib
import pkgutil
from typing import get_args

import pytest

import gymmesh
from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.security.audit import ACTIONS
from gymmesh_runtime.security.config import Permission
from gymmesh_runtime.security.identity import Identity
from gymmesh_runtime.security.permissions import PERMISSION_OF, refusal_of

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
    ours = {method for method in PERMISSION_OF if method.startswith("gymmesh.")}
    assert ours == contract()
    assert len(ours) > 25
    assert set(PERMISSION_OF.values()) == set(get_args(Permission))


def test_every_action_takes_more_than_a_look() -> None:
    assert {PERMISSION_OF[method] for method in ACTIONS} == {"control", "register"}


@pytest.mark.parametrize("method", sorted(PERMISSION_OF))
def test_who_may_and_who_may_not(method: str) -> None:
    takes = PERMISSION_OF[method]
    for permission in get_args(Permission):
        refused = refusal_of(Identity("ann", frozenset((permission,))), method)
        if permission == takes:
            assert refused is None
            continue
        assert refused is not None
        assert refused.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED
        assert refused.metadata == {"method": method}
        assert f"takes the permission '{takes}'" in refused.message


def test_a_stranger_may_nothing() -> None:
    refused = refusal_of(None, RUN)
    assert refused is not None
    assert refused.reason == errors_pb2.ERROR_REASON_CREDENTIAL_INVALID


def test_what_is_not_in_the_table_nobody_may() -> None:
    everything = Identity("root", frozenset(get_args(Permission)))
    refused = refusal_of(everything, "other.v1.Service/Method")
    assert refused is not None
    assert refused.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED

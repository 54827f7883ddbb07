"""A boundary's name, also of one that a later contract has."""

from __future__ import annotations

from typing import cast

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_cli.terminal.events import EventPrinter
from gymmesh_client import FailedAttempt
from gymmesh_client.boundaries import boundary_name


@pytest.mark.parametrize("name", pb.Boundary.keys())
def test_it_has_no_prefix(name: str) -> None:
    assert f"BOUNDARY_{boundary_name(pb.Boundary.Value(name))}" == name


def test_one_of_a_later_contract_is_shown_as_its_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert boundary_name(4242) == "4242"
    failure = pb.Failure(boundary=cast("pb.Boundary.ValueType", 4242))
    EventPrinter().failure(FailedAttempt(failure, pb.Rollout()))
    assert "4242" in capsys.readouterr().out

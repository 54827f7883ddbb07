"""How sandboxes end, as far as their users learn it."""

from __future__ import annotations

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_sandbox_access import SandboxEnds
from gymmesh_sandbox_access.ends import end_of, ref_metadata
from tests.unit.sandbox_access.stand_in import error

BOX = grant_pb2.SandboxRef(sandbox_id="b-1", instance_id="boxes-0", service="boxes")


@pytest.mark.parametrize(
    ("reason", "cause", "end"),
    [
        ("SANDBOX_LOST", "expired", pb.SANDBOX_END_CAUSE_EXPIRED),
        ("SANDBOX_LOST", "life", pb.SANDBOX_END_CAUSE_LIFE),
        ("SANDBOX_LOST", "asked", pb.SANDBOX_END_CAUSE_OWNER),
        ("SANDBOX_LOST", "removed", pb.SANDBOX_END_CAUSE_REMOVED),
        ("SANDBOX_LOST", "shutdown", pb.SANDBOX_END_CAUSE_SHUTDOWN),
        # Of one that ended before the call.
        ("SANDBOX_LOST", "out_of_memory", pb.SANDBOX_END_CAUSE_OUT_OF_MEMORY),
        ("SANDBOX_LOST", "the sandbox's container ended", pb.SANDBOX_END_CAUSE_LOST),
        ("SANDBOX_LOST", "", pb.SANDBOX_END_CAUSE_LOST),
        ("SANDBOX_OUT_OF_MEMORY", "", pb.SANDBOX_END_CAUSE_OUT_OF_MEMORY),
    ],
)
def test_an_error_says_how_its_sandbox_ended(
    reason: str, cause: str, end: pb.SandboxEndCause.ValueType
) -> None:
    found = end_of(error(reason, "two\nlines", cause=cause))
    assert found is not None
    assert found.cause == end
    assert "\n" not in found.detail


@pytest.mark.parametrize("reason", ["SANDBOX_LEASE_EXPIRED", "SANDBOX_LIMIT", "DEADLINE_PASSED"])
def test_other_errors_say_of_no_end(reason: str) -> None:
    assert end_of(error(reason, cause="expired")) is None


def test_the_first_end_of_each_counts() -> None:
    noted: list[pb.SandboxEnded] = []
    ends = SandboxEnds(noted.append)
    ends.ended(BOX)  # it never opened here
    ends.failed(error("SANDBOX_LOST", sandbox_id="b-2"))
    assert not noted
    ends.opened(BOX)
    ends.failed(error("SANDBOX_LOST", "gone", sandbox_id="b-1", cause="expired"))
    ends.ended(BOX)
    end = pb.SandboxEnd(cause=pb.SANDBOX_END_CAUSE_EXPIRED, detail="gone")
    assert noted == [pb.SandboxEnded(sandbox_id="b-1", instance_id="boxes-0", end=end)]


def test_an_error_names_a_sandbox_that_nothing_named_before() -> None:
    ends = SandboxEnds(lambda _: None)
    about = ref_metadata(BOX, "workspace")
    gone = error("SANDBOX_LOST", cause="life", **about)
    assert ends.unknown(gone) == pb.SandboxOpened(sandbox=BOX, role="workspace")
    assert ends.unknown(error("SANDBOX_LIMIT", **about)) is None, "it ended nothing"
    assert ends.unknown(error("SANDBOX_LOST", sandbox_id="b-1")) is None, "a role is needed"
    ends.opened(BOX)
    ends.ended(BOX)
    assert ends.unknown(gone) is None, "once for each, also when it has ended"

"""A verdict that breaks the contract is that rollout's failure, and ends nothing else."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.verify.v1 import verify_pb2
from gymmesh_data.reverify import Verifiers
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

NAN = math.nan


class OneVerifier:
    """A directory of one environment, written by somebody else, that gives one verdict."""

    def __init__(self, verdict: pb.Verification) -> None:
        self._verdict = verdict

    async def pick(self, *_: Any, **__: Any) -> None:
        """The only instance needs no name."""

    def peer(self, *_: Any) -> OneVerifier:
        return self

    async def Verify(self, *_: Any, **__: Any) -> verify_pb2.VerifyResponse:
        return verify_pb2.VerifyResponse(verification=self._verdict)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"components": [pb.RewardComponent(name="a", value=NAN)]}, "components"),
        ({"components": [pb.RewardComponent(name="a", value=1, weight=math.inf)]}, "components"),
        ({"spans": [pb.RewardSpan(name="a", value=-math.inf)]}, "spans"),
        ({"evidence_json": b"[1]"}, "evidence_json"),
        ({"evidence_json": b"{"}, "evidence_json"),
        ({"reward": NAN}, "reward"),
    ],
)
async def test_a_verdict_that_breaks_the_contract_is_refused(
    wrong: dict[str, Any], rule: str
) -> None:
    said = {"status": pb.VERIFICATION_STATUS_VERIFIED, "reward": 1.0} | wrong
    directory = cast(PeerDirectory, OneVerifier(pb.Verification(**said)))
    with pytest.raises(MeshError) as raised:
        await Verifiers(directory).verify("sums", verify_pb2.VerifyRequest())
    assert raised.value.reason == errors_pb2.ERROR_REASON_CONTRACT_VIOLATED
    assert raised.value.metadata["rule"] == rule

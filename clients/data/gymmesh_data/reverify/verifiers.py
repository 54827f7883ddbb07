"""The environments that judge: the description of each environment, and its verdicts, local or
remote.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.verify.v1 import verify_pb2
from gymmesh_client import UserError
from gymmesh_data.reverify.replay import Replayed, replayed
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import Instance, PeerDirectory

RESOURCE: Final = "gymmesh.resource.v1.ResourceService"
VERIFY: Final = "gymmesh.verify.v1.VerifyService"
_HELLO_S: Final = 10.0
_EXAMPLES: Final = 200
_STATUSES: Final = (
    pb.VERIFICATION_STATUS_VERIFIED,
    pb.VERIFICATION_STATUS_PENDING,
    pb.VERIFICATION_STATUS_SKIPPED,
)


class Verifiers:
    """Judges with the environments of a directory.

    Args:
        timeout_s: seconds that one verdict may take.
        own: the verifier that judges in place of the environments', as `FILE.py:NAME`.
    """

    def __init__(self, directory: PeerDirectory, timeout_s: float = 120.0, own: str = "") -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._own = own
        self.about: dict[str, resource_pb2.GetEnvironmentResponse] = {}
        #: By environment: the keys that its own example tasks have.
        self.known_keys: dict[str, frozenset[str]] = {}

    async def prepare(self, names: Collection[str]) -> None:
        """Request the description of each environment, before any verdict.

        Raises:
            UserError: an environment judges only with the live session and neither keeps states
                nor has tools that may be replayed, or it judges by rewards of turns, which rows do
                not have.
            MeshError: an environment does not exist or does not answer.
        """
        for name in sorted(names):
            instance = await self._directory.pick(RESOURCE, name, timeout=_HELLO_S)
            peer = self._directory.peer(instance)
            about: resource_pb2.GetEnvironmentResponse = await peer.GetEnvironment(
                resource_pb2.GetEnvironmentRequest(), timeout=_HELLO_S
            )
            _refuse_live(name, about)
            self.about[name] = about
            self.known_keys[name] = await self._keys(peer)

    def origin(self, name: str) -> dict[str, Any]:
        """Who judges, for a verdict's provenance."""
        about = self.about[name]
        origin = {
            "environment": name,
            "environment_version": about.version,
            "instance": about.instance_id,
        }
        if self._own:
            # Such a verifier seldom has a version of its own.
            origin |= {"verifier": self._own, "verifier_digest": about.source_digest.hex()}
        return origin

    def by_state(self, name: str) -> bool:
        """Whether the verdict depends on the final state of the rollout's session."""
        return self.about[name].verify_needs_session and not self.about[name].judges_groups

    def replays(self, name: str) -> bool:
        """Whether the environment's tools may be called again."""
        return self.about[name].tools_replayable

    def takes_turns(self, name: str) -> bool:
        """Whether the environment takes turns between the policy's answers. A replay of tool calls
        does not repeat turns.
        """
        return self.about[name].multi_turn

    @asynccontextmanager
    async def replay(
        self, name: str, request: verify_pb2.VerifyRequest
    ) -> AsyncIterator[ReplayedSession]:
        """A session in which the tool calls of a request's transcript were made again. Raises
        MeshError.
        """
        instance = await self._directory.pick(
            RESOURCE, name, affinity=request.rollout_id, timeout=_HELLO_S
        )
        peer = self._directory.peer(instance)
        async with replayed(peer, request, self._timeout_s) as session:
            yield ReplayedSession(self, instance, session)

    async def verify_at(
        self, instance: Instance, request: verify_pb2.VerifyRequest
    ) -> pb.Verification:
        """A verdict by the instance that holds the session. Raises the errors of `verify`."""
        reply: verify_pb2.VerifyResponse = await self._ask(instance, "Verify", request)
        return _checked(reply.verification)

    def judges_groups(self, name: str) -> bool:
        """Whether the repeats of a task are judged together."""
        return self.about[name].judges_groups

    async def verify(self, name: str, request: verify_pb2.VerifyRequest) -> pb.Verification:
        """A rollout's verdict. Raises MeshError if there is none, for any reason."""
        reply: verify_pb2.VerifyResponse = await self._call(
            name, "Verify", request, request.rollout_id
        )
        return _checked(reply.verification)

    async def verify_group(
        self, name: str, request: verify_pb2.VerifyGroupRequest
    ) -> Sequence[pb.Verification]:
        """The verdicts of a task's repeats, in their order. Raises as `verify`."""
        reply: verify_pb2.VerifyGroupResponse = await self._call(
            name, "VerifyGroup", request, request.task.task_id
        )
        wanted = [member.rollout_id for member in request.members]
        if [verdict.rollout_id for verdict in reply.verdicts] != wanted:
            raise _violated(
                "verdicts", "the number or order of verdicts does not match the group's members"
            )
        return [_checked(verdict.verification) for verdict in reply.verdicts]

    async def _call(self, name: str, method: str, request: Any, affinity: str) -> Any:
        """Call an instance; another one where that was not there."""
        instance = await self._directory.pick(RESOURCE, name, affinity=affinity, timeout=_HELLO_S)
        try:
            return await self._ask(instance, method, request)
        except MeshError as error:
            other = await self._directory.instead(
                instance, error, affinity=affinity, timeout=_HELLO_S
            )
            if other is None:
                raise
            return await self._ask(other, method, request)

    async def _ask(self, instance: Instance, method: str, request: Any) -> Any:
        peer = self._directory.peer(instance, VERIFY)
        return await getattr(peer, method)(request, timeout=self._timeout_s)

    async def _keys(self, peer: Any) -> frozenset[str]:
        """The keys of the environment's example tasks; none where it does not give them."""
        request = resource_pb2.ListTasksRequest(page_size=_EXAMPLES)
        try:
            page = await peer.ListTasks(request, timeout=_HELLO_S)
            payloads = [loads(task.payload_json) for task in page.tasks if task.payload_json]
        except (MeshError, CodecError):
            return frozenset()
        return frozenset().union(*(one for one in payloads if isinstance(one, dict)))


class ReplayedSession:
    """A session with the state of a rollout's session; `what` describes the replay."""

    def __init__(self, verifiers: Verifiers, instance: Instance, what: Replayed) -> None:
        self._verifiers = verifiers
        self._instance = instance
        self.what = what

    async def verify(self, request: verify_pb2.VerifyRequest) -> pb.Verification:
        """The verdict in this session. Raises the errors of `Verifiers.verify`."""
        request.session_id = self.what.session_id
        return await self._verifiers.verify_at(self._instance, request)


def _refuse_live(name: str, about: resource_pb2.GetEnvironmentResponse) -> None:
    # A group is judged without sessions, whatever its rollouts had.
    by_session = about.verify_needs_session and not about.judges_groups
    if by_session and not about.keeps_state and about.tools_replayable and about.multi_turn:
        raise UserError(
            f"environment {name!r} takes turns and does not keep its final state. A replay "
            "of tool calls does not repeat turns, so the environment's stored rollouts can't "
            "be judged again. Set keep_state in the environment's class, or select the other "
            "environments with --environment NAME"
        )
    if by_session and not (about.keeps_state or about.tools_replayable):
        raise UserError(
            f"environment {name!r} needs the live session to score a rollout. The environment "
            "neither keeps the final state nor allows a replay of its tools, so the stored "
            "rollouts can't be judged again. Set keep_state or tools_replayable in the "
            "environment's class, or select the other environments with --environment "
            "NAME"
        )
    summed = about.reward_rule in (resource_pb2.REWARD_RULE_SUM, resource_pb2.REWARD_RULE_INCLUDED)
    if about.multi_turn and summed:
        raise UserError(
            f"environment {name!r} scores with the rewards of its turns. Rows do not "
            "contain these rewards, so the environment's stored rollouts can't be judged "
            "again. Select the other environments with --environment NAME"
        )


def _checked(verdict: pb.Verification) -> pb.Verification:
    """The verdict, once it is one by the contract. Raises CONTRACT_VIOLATED."""
    verified = verdict.status == pb.VERIFICATION_STATUS_VERIFIED
    if verdict.status not in _STATUSES:
        raise _violated("status", f"the verdict's status is {verdict.status}")
    if verified != verdict.HasField("reward"):
        raise _violated(
            "reward",
            "a verdict with the status VERIFIED must have a reward, other verdicts must not",
        )
    if verified and not math.isfinite(verdict.reward):
        raise _violated("reward", f"the verdict's reward is {verdict.reward}; use a finite number")
    for part in verdict.components:
        if not (math.isfinite(part.value) and math.isfinite(part.weight)):
            raise _violated(
                "components",
                f"the verdict's component {part.name!r} has the value {part.value} and the weight "
                f"{part.weight}; use finite numbers",
            )
    for span in verdict.spans:
        if not math.isfinite(span.value):
            raise _violated(
                "spans", f"the verdict's span {span.name!r} is {span.value}; use a finite number"
            )
    if verdict.evidence_json and not _is_object(verdict.evidence_json):
        raise _violated("evidence_json", "the verdict's evidence is not a JSON object")
    return verdict


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(loads(text), dict)
    except CodecError:
        return False


def _violated(rule: str, problem: str) -> MeshError:
    return MeshError(errors_pb2.ERROR_REASON_CONTRACT_VIOLATED, problem, metadata={"rule": rule})

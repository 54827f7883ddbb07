"""Judges a rollout by the class's `verify`, or by the sum of its reward functions."""

from __future__ import annotations

from typing import Any

from gymmesh_resource.errors import WrongResult
from gymmesh_resource.model_access import UsageCounter
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.serving.served_environment import ServedEnvironment
from gymmesh_resource.session import Session


class Verifier:
    """Judges one rollout at a time; falsy for an environment that judges groups alone."""

    def __init__(self, served: ServedEnvironment) -> None:
        environment, limit_s = served.environment, served.config.verify_timeout_s
        self._rewards = served.rewards
        self._verify = served.method(environment.verify, limit_s)
        self._functions = {
            call.name: served.method(call.function, limit_s) for call in served.rewards.calls
        }
        self._present = served.defines("verify") or served.rewards.summed

    def __bool__(self) -> bool:
        return self._present

    async def judge(
        self,
        session: Session[Any],
        rollout: Rollout,
        deadline: float | None,
        usage: UsageCounter | None,
    ) -> object:
        """What `verify` returned, or the verdict of all parts. Each may take the time that a
        verdict may take. Raises what they raise, and WrongResult.
        """
        verified: object = None
        rewards = self._rewards
        if rewards.verify_weight is not None:
            verified = await self._verify.call((session, rollout), deadline=deadline, usage=usage)
        if not rewards.summed:
            return verified
        values: dict[str, object] = {}
        for call in rewards.calls:
            with rollout.stage(call.name):
                values[call.name] = await self._functions[call.name].call(
                    (), call.arguments(session, rollout), deadline=deadline, usage=usage
                )
        try:
            return rewards.total(values, verified)
        except WrongResult as error:
            method = error.method or self._verify.function
            raise WrongResult(str(error), method) from None

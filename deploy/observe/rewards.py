"""The mean reward. Rewards may be below 0, so their histogram has neither a sum nor a count."""

from __future__ import annotations

from deploy.observe.families import FAMILIES as m
from deploy.observe.promql import Scope


def mean_reward(scope: Scope, *by: str) -> str:
    """Of verified rollouts."""
    gained, lost = (
        scope.rate(m.REWARDS_ABSOLUTE, *by, where=f'sign="{sign}"')
        for sign in ("positive", "negative")
    )
    judged = scope.rate(m.VERIFICATIONS, *by, where='status="verified"')
    return f"({gained} - {lost}) / {judged}"

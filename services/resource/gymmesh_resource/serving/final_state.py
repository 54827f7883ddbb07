"""The final state of a session: stored with the verdict, and used for judging when the session no
longer exists.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import DefinitionError, StateGone
from gymmesh_resource.kept_state import NotKept, StateClasses, state_from_json, state_to_json
from gymmesh_resource.session import Session
from gymmesh_runtime.errors import field_invalid

_LONGEST_REASON: Final = 300


def final_state(
    environment: Environment[Any], session: Session[Any], most_bytes: int
) -> rollout_pb2.FinalState:
    """A session's state for a later verdict, or why it is not kept."""
    try:
        text = state_to_json(session.state, _names(environment, session.state), most_bytes)
    except NotKept as reason:
        return rollout_pb2.FinalState(omitted=str(reason)[:_LONGEST_REASON])
    return rollout_pb2.FinalState(state_json=text)


def kept_state(
    environment: Environment[Any],
    fresh: object,
    kept: rollout_pb2.FinalState,
    field: str = "final_state",
) -> object:
    """The state that was kept. `fresh`: that of a new session. Where that is None, the verifier has
    no state of its own, such as a function in another file, and need not know the classes of this
    one. Raises INVALID_ARGUMENT for `field`, which is its place in the request.
    """
    try:
        names = _names(environment, fresh, stand_ins=fresh is None)
        return state_from_json(kept.state_json, names)
    except ValueError as error:
        problem = f"is not a state of {type(environment).__name__}: {error}"
        raise field_invalid(field, problem) from None


def state_gone(environment: Environment[Any], why: str = "") -> object:
    """Raises StateGone, for a verifier that asks for the state of a session that is gone."""
    raise StateGone(type(environment).__name__, why)


def refuse_unneeded_session(environment: Environment[Any]) -> None:
    """Refuse a verifier that says that it needs no session and reads its state, which tools or
    turns change: without the session it would judge a fresh one. Raises DefinitionError.
    """
    if _reads(getattr(type(environment).verify, "__code__", None), "state"):
        kind = type(environment).__name__
        raise DefinitionError(
            f"{kind}.verify reads session.state, so the verifier needs the session. Remove "
            "verify_needs_session = False. gym-cli reverify can still judge stored rollouts, "
            "because each rollout keeps the final state of its session"
        )


def refuse_new_sandboxes(environment: Environment[Any], needs_session: bool) -> None:
    """Refuse a verifier that says that it needs no session and looks into its sandboxes, in which
    the agent works: without the session it would judge new ones. Raises DefinitionError.
    """
    code = getattr(type(environment).verify, "__code__", None)
    if not needs_session and _reads(code, "sandbox", "sandboxes"):
        kind = type(environment).__name__
        raise DefinitionError(
            f"{kind}.verify uses a sandbox in which the agent works, so the verifier needs the "
            "session. Remove verify_needs_session = False."
        )


def _reads(code: Any, *names: str) -> bool:
    """Whether code names one of these attributes, that of functions within it included."""
    if not inspect.iscode(code):
        return False
    return not set(names).isdisjoint(code.co_names) or any(
        _reads(inner, *names) for inner in code.co_consts
    )


def _names(
    environment: Environment[Any], state: object, *, stand_ins: bool = False
) -> StateClasses:
    modules = type(environment).__module__, type(state).__module__
    return StateClasses(*modules, stand_ins=stand_ins)

"""What a trainer saves beside its checkpoint, so that a resumed run trains on the same rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from gymmesh_client import UserError

VERSION: Final = 1


class SavedTask(msgspec.Struct):
    """A task that was drawn and whose group no trainer got.

    Attributes:
        task: the message, serialised.
        source: the name that it was drawn with.
        own_id: its id in its source.
    """

    task: bytes
    source: str = ""
    own_id: str = ""


class SavedRun(msgspec.Struct):
    """The groups that a step left under way.

    Attributes:
        step: the step that began them; with `part`, it names the files.
        part: of the step's tasks, from 1.
        drawn: whether their tasks are the collector's own, and not the step's.
        groups: those that no trainer got, in the order in which they were begun.
    """

    step: int
    part: int
    drawn: bool
    groups: list[SavedTask]


class CollectorState(msgspec.Struct, kw_only=True):
    """A collector's state.

    Attributes:
        version: of this form.
        step: the last step that began; 0: none.
        weights_version: the version that was announced last; None: none.
        weights_adapter: the adapter that was announced with it; empty: none.
        newest_version: the newest version that was announced or seen.
        first_version: the oldest of these.
        counts: of the collector.
        carried: what earlier steps left under way.
        returned: tasks that a step drew and dropped; they are drawn first.
        tasks: the state of the collector's own tasks; None: it has none.
    """

    version: int = VERSION
    step: Annotated[int, msgspec.Meta(ge=0)]
    weights_version: int | None
    newest_version: int | None
    first_version: int | None = None  # later than the others: a state may be without it
    weights_adapter: str = ""  # likewise
    counts: dict[str, int]
    carried: list[SavedRun]
    returned: list[SavedTask]
    tasks: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON can hold it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @staticmethod
    def of(state: Mapping[str, Any]) -> CollectorState:
        """The state of a dictionary. Raises UserError for one of another form."""
        if not isinstance(state, Mapping):
            raise UserError(
                "state: must be the dictionary that state_dict() returned, not "
                f"{type(state).__name__}"
            )
        version = state.get("version")
        if version != VERSION:
            raise UserError(
                f"state: version {version!r} is not supported; this version of gymmesh reads "
                f"{VERSION}"
            )
        try:
            return msgspec.convert(dict(state), CollectorState)
        except msgspec.ValidationError as error:
            raise UserError(f"state: {error}") from None

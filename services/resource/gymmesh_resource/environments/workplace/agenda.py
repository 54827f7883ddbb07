"""The calendar."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from gymmesh_resource import Session, ToolError, tool
from gymmesh_resource.environments.workplace.office import Office
from gymmesh_resource.environments.workplace.searching import page_of, read_moment, require

EventId: TypeAlias = Annotated[str, "the event's id, eight digits"]
EventField: TypeAlias = Annotated[
    Literal["event_id", "event_name", "participant_email", "event_start", "duration"],
    "which field",
]
MutableEventField: TypeAlias = Annotated[
    Literal["event_name", "participant_email", "event_start", "duration"], "which field"
]
_LONGEST = 60 * 24 * 31


class CalendarTools:
    """Reading, searching, making and changing events."""

    @tool(name="calendar_get_event_information_by_id")
    def event_field(
        self, session: Session[Office], event_id: EventId, field: EventField
    ) -> dict[str, Any]:
        """Read one field of an event."""
        return {field: session.state.events.find(event_id)[field]}

    @tool(name="calendar_search_events")
    def search_events(
        self,
        session: Session[Office],
        query: str = "",
        time_min: str | None = None,
        time_max: str | None = None,
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any] | str:
        """Find events by name or participant, the latest first.

        Args:
            query: text that the name or the participant's address has
            time_min: the earliest start, YYYY-MM-DD HH:MM:SS
            time_max: the latest start, YYYY-MM-DD HH:MM:SS
            page: which page of the results, from 1
            page_size: events on a page
        """
        wanted = query.lower()
        earliest = read_moment("time_min", time_min) if time_min else ""
        latest = read_moment("time_max", time_max) if time_max else "9999"
        found = [
            event
            for event in session.state.events
            if earliest <= (event["event_start"] or "") <= latest
            and (
                wanted in (event["event_name"] or "").lower()
                or wanted in (event["participant_email"] or "").lower()
            )
        ]
        found.sort(key=lambda event: event["event_start"] or "", reverse=True)
        return page_of("events", found, page, page_size)

    @tool(name="calendar_create_event")
    def create_event(
        self,
        session: Session[Office],
        event_name: str,
        participant_email: str,
        event_start: str,
        duration: str | int,
    ) -> str:
        """Make an event; answers its id.

        Args:
            event_name: the event's name
            participant_email: the address of who takes part
            event_start: when it starts, YYYY-MM-DD HH:MM:SS
            duration: minutes
        """
        require(event_name=event_name, participant_email=participant_email)
        return session.state.events.add(
            {
                "event_name": event_name,
                "participant_email": participant_email.lower(),
                "event_start": read_moment("event_start", event_start),
                "duration": _minutes(duration),
            }
        )

    @tool(name="calendar_delete_event")
    def delete_event(self, session: Session[Office], event_id: EventId) -> str:
        """Delete an event."""
        session.state.events.delete(event_id)
        return "Event deleted successfully."

    @tool(name="calendar_update_event")
    def update_event(
        self,
        session: Session[Office],
        event_id: EventId,
        field: MutableEventField,
        new_value: Annotated[str | int, "the new value of the field"],
    ) -> str:
        """Change one field of an event."""
        session.state.events.find(event_id)
        value = str(new_value)
        require(new_value=value)
        if field == "event_start":
            value = read_moment("event_start", value)
        elif field == "duration":
            value = _minutes(value)
        elif field == "participant_email":
            value = value.lower()
        session.state.events.update(event_id, field, value)
        return "Event updated successfully."


def _minutes(duration: str | int) -> str:
    try:
        minutes = int(str(duration)[:20])
    except ValueError:
        minutes = 0
    if not 1 <= minutes <= _LONGEST:
        raise ToolError(f"duration must be a number of minutes, not {str(duration)[:40]!r}.")
    return str(minutes)

"""The website's analytics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from gymmesh_resource import Session, ToolError, tool
from gymmesh_resource.environments.workplace.office import Office
from gymmesh_resource.environments.workplace.searching import read_date

FirstDay: TypeAlias = Annotated[str | None, "the first day, YYYY-MM-DD"]
LastDay: TypeAlias = Annotated[str | None, "the last day, YYYY-MM-DD"]


class AnalyticsTools:
    """Counting visits, and plots of them."""

    @tool(name="analytics_get_visitor_information_by_id")
    def visitor(self, session: Session[Office], visitor_id: str) -> list[Mapping[str, Any]]:
        """All visits of one visitor.

        Args:
            visitor_id: the visitor's id
        """
        found = [visit for visit in session.state.data.visits if visit["visitor_id"] == visitor_id]
        if not found:
            raise ToolError(f"There is no visitor {visitor_id[:40]!r}.")
        return found

    @tool(name="analytics_create_plot")
    def create_plot(
        self,
        session: Session[Office],
        time_min: str,
        time_max: str,
        value_to_plot: Literal[
            "total_visits",
            "session_duration_seconds",
            "user_engaged",
            "visits_direct",
            "visits_referral",
            "visits_search_engine",
            "visits_social_media",
        ],
        plot_type: Literal["bar", "line", "scatter", "histogram"],
    ) -> str:
        """Plot a value over a range of days; answers the plot's file.

        Args:
            time_min: the first day, YYYY-MM-DD
            time_max: the last day, YYYY-MM-DD
            value_to_plot: which value
            plot_type: how it is drawn
        """
        first, last = read_date("time_min", time_min), read_date("time_max", time_max)
        path = f"plots/{first}_{last}_{value_to_plot}_{plot_type}.png"
        session.state.plots.append(path)
        return path

    @tool(name="analytics_total_visits_count")
    def total_visits(
        self, session: Session[Office], time_min: FirstDay = None, time_max: LastDay = None
    ) -> dict[str, int]:
        """How many visits there were, by day."""
        return _sums((day, 1) for day, _ in _visits(session, time_min, time_max))

    @tool(name="analytics_engaged_users_count")
    def engaged_users(
        self, session: Session[Office], time_min: FirstDay = None, time_max: LastDay = None
    ) -> dict[str, int]:
        """How many visitors were engaged, by day."""
        visits = _visits(session, time_min, time_max)
        return _sums((day, int(visit["user_engaged"])) for day, visit in visits)

    @tool(name="analytics_traffic_source_count")
    def traffic_source(
        self,
        session: Session[Office],
        time_min: FirstDay = None,
        time_max: LastDay = None,
        traffic_source: Literal["direct", "referral", "search engine", "social media"]
        | None = None,
    ) -> dict[str, int]:
        """How many visits came from a source, by day; from all where none is given.

        Args:
            traffic_source: which source
        """
        visits = _visits(session, time_min, time_max)
        return _sums(
            (day, int(traffic_source in (None, visit["traffic_source"]))) for day, visit in visits
        )

    @tool(name="analytics_get_average_session_duration")
    def average_duration(
        self, session: Session[Office], time_min: FirstDay = None, time_max: LastDay = None
    ) -> dict[str, float]:
        """How long visits took on average, in seconds, by day."""
        visits = list(_visits(session, time_min, time_max))
        counts = _sums((day, 1) for day, _ in visits)
        seconds = _sums((day, int(visit["session_duration_seconds"])) for day, visit in visits)
        return {day: seconds[day] / count for day, count in counts.items()}


def _visits(
    session: Session[Office], time_min: str | None, time_max: str | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The visits of a range of days, both included, with their day."""
    first = read_date("time_min", time_min) if time_min else ""
    last = read_date("time_max", time_max) if time_max else "~"
    for visit in session.state.data.visits:
        day: str = visit["date_of_visit"]
        if first <= day <= last:
            yield day, visit


def _sums(parts: Iterator[tuple[str, int]]) -> dict[str, int]:
    """Sums by day, in the order of days."""
    found: defaultdict[str, int] = defaultdict(int)
    for day, value in parts:
        found[day] += value
    return dict(sorted(found.items()))

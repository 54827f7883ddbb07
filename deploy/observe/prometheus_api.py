"""Asks a Prometheus what panels show, over its HTTP API."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

_CALL_S: Final = 30.0
_MARK: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Series:
    """A series: its labels, and Unix time and value of each sample that is a number."""

    labels: dict[str, str]
    samples: list[tuple[float, float]]

    def named(self, legend: str) -> str:
        """As a panel's legend calls it."""
        if legend in ("", "__auto"):
            return ", ".join(self.labels.values())
        return _MARK.sub(lambda found: self.labels.get(found[1], ""), legend).strip()

    def is_named(self, legend: str) -> bool:
        """Whether it has a value for one of the legend's labels, or the legend has none."""
        marks = _MARK.findall(legend)
        return any(map(self.labels.get, marks)) if marks else bool(self.named(legend))


@dataclass(frozen=True, slots=True)
class Server:
    """A Prometheus at a host and port. Calls raise OSError, and ValueError for a refused query."""

    address: str

    def now(self, expr: str) -> list[Series]:
        """What a query gives at present."""
        return [
            Series(one["metric"], _numbers([one["value"]]))
            for one in self._data("query", query=expr)["result"]
        ]

    def over(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """What it gives from `start` to `end`, every `step` seconds."""
        data = self._data("query_range", query=expr, start=start, end=end, step=step)
        return [Series(one["metric"], _numbers(one["values"])) for one in data["result"]]

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self._data("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def get(self, path: str) -> Any:
        """What the API answers at a path below /api/v1/."""
        return self._data(path)

    def _data(self, path: str, **asked: Any) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urlencode(asked)}"
        try:
            with urlopen(url, timeout=_CALL_S) as answer:
                return json.load(answer)["data"]
        except OSError as error:
            body = getattr(error, "read", bytes)()
            if not body:
                raise
            raise ValueError(f"{json.loads(body)['error']}: {asked.get('query', path)}") from None


def filled_in(expr: str, window: str, variables: dict[str, str]) -> str:
    """A panel's query with Grafana's variables put in: all is chosen, where nothing is said."""
    expr = expr.replace("$__rate_interval", window)
    return re.sub(r"\$(\w+)", lambda found: variables.get(found[1], ".*"), expr)


def _numbers(samples: list[Any]) -> list[tuple[float, float]]:
    found = [(float(at), float(value)) for at, value in samples]
    return [(at, value) for at, value in found if math.isfinite(value)]

"""The API server still speaks as it was recorded for the unit tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.recording import FILE, record


async def test_the_api_server_speaks_as_recorded(cluster: Cluster, namespace: str) -> None:
    """The same fields of the same types; names, versions and times differ."""
    recorded = json.loads(FILE.read_text())
    assert set(fields(await record(cluster, namespace))) == set(fields(recorded))


def fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each field's path, and what it holds."""
    if isinstance(value, dict):
        for key, one in value.items():
            # managedFields name those who wrote what; that is read nowhere.
            if key != "managedFields":
                yield from fields(one, f"{path}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from fields(one, f"{path}[]")
    else:
        yield path, type(value).__name__

"""Environments by name: finds their classes, makes them from options, reads their examples."""

from .examples import example_rows, example_tasks
from .loading import (
    About,
    about,
    environment_class,
    environment_names,
    make_environment,
    named_object,
    uses_of,
)
from .source import source_digest

__all__ = [
    "About",
    "about",
    "environment_class",
    "environment_names",
    "example_rows",
    "example_tasks",
    "make_environment",
    "named_object",
    "source_digest",
    "uses_of",
]

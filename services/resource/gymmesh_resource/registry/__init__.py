"""Environments by name: finds their classes, makes them from options, reads their examples."""

from .examples import example_tasks
from .loading import (
    About,
    about,
    environment_class,
    environment_names,
    make_environment,
    uses_of,
)
from .source import source_digest

__all__ = [
    "About",
    "about",
    "environment_class",
    "environment_names",
    "example_tasks",
    "make_environment",
    "source_digest",
    "uses_of",
]

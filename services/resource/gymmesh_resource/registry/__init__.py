"""Environments by name: finds their classes, makes them from options, reads their examples."""

from gymmesh_resource.registry.examples import example_rows, example_tasks
from gymmesh_resource.registry.loading import (
    About,
    about,
    environment_class,
    environment_names,
    make_environment,
    named_object,
    uses_of,
)
from gymmesh_resource.registry.signatures import check_signatures
from gymmesh_resource.registry.source import source_digest

__all__ = [
    "About",
    "about",
    "check_signatures",
    "environment_class",
    "environment_names",
    "example_rows",
    "example_tasks",
    "make_environment",
    "named_object",
    "source_digest",
    "uses_of",
]

"""The public faces of the rooms of environments and of the mesh."""

from __future__ import annotations

from importlib import import_module

import pytest

from gymmesh_resource.registry import environment_class, environment_names

ROOMS = (
    "gymmesh_mesh",
    "gymmesh_mesh.processes",
    "gymmesh_resource",
    "gymmesh_resource.checks",
    "gymmesh_resource.mcp_server",
    "gymmesh_resource.model_access",
    "gymmesh_resource.registry",
    "gymmesh_resource.sandbox",
    "gymmesh_resource.serving",
    "gymmesh_resource.tools",
    "gymmesh_resource.workers",
    "gymmesh_sandbox_access",
)


@pytest.mark.parametrize("room", ROOMS)
def test_a_face_names_what_it_has_in_order(room: str) -> None:
    face = import_module(room)
    names = face.__all__
    # Constants, classes, functions: the linter's order.
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(face, name) for name in names)


@pytest.mark.parametrize("name", environment_names())
def test_an_environments_package_has_its_class_alone(name: str) -> None:
    kind = environment_class(name)
    package = import_module(f"gymmesh_resource.environments.{name}")
    assert getattr(package, kind.__name__) is kind
    assert package.__all__ == [kind.__name__]
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018  # the access is what is tested

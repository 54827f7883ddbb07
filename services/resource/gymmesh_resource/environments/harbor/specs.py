"""The sandbox specs of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_resource import SandboxSpec
from gymmesh_resource.environments.harbor.folders import filled_in
from gymmesh_resource.environments.harbor.task import HarborTask, TaskBox, TaskRefused
from gymmesh_sandbox_access import Reach
from gymmesh_sandbox_access.files import packed

NetworkOption: TypeAlias = Literal["task", "agent", "none", "open"] | list[str] | None
"""What all sandboxes reach; `task`: what tasks say; None: the same, but no public network."""


class TaskSpecs:
    """Makes the specs of tasks' sandboxes.

    images: images of the sandbox service, by the keys of `HarborEnvironment`. network: the network
    of all sandboxes. variables: the values for `${NAME}`. storage_limit: whether a task's storage
    is a limit.
    """

    def __init__(
        self,
        images: Mapping[str, str],
        network: NetworkOption,
        variables: Mapping[str, str],
        *,
        storage_limit: bool = True,
    ) -> None:
        self._images = images
        self._network = network
        self._variables = variables
        self._storage_limit = storage_limit

    def of_agent(self, name: str, task: HarborTask) -> SandboxSpec:
        """The agent's sandbox. Raises TaskRefused.

        name: the task's path.
        """
        spec = self._spec(name, task.box, "environment", "agent")
        return replace(spec, user=task.agent_user, lent=True)

    def of_tests(self, name: str, box: TaskBox) -> SandboxSpec:
        """A sandbox for tests alone. Raises TaskRefused."""
        return self._spec(name, box, "verifier.environment", "none")

    def _spec(
        self, name: str, box: TaskBox, table: str, offline: Literal["agent", "none"]
    ) -> SandboxSpec:
        of = f"{name}/{box.part}" if box.part else name
        keys = (of, box.image, "*")
        image = next((self._images[key] for key in keys if key in self._images), box.image)
        build = None
        if not image and box.build is not None:
            build = sandbox_pb2.ImageBuild(context=packed(box.build, box.without_top))
        return SandboxSpec(
            image=image,
            build=build,
            cpus=box.cpus,
            memory_mb=box.memory_mb,
            disk_mb=box.disk_mb if self._storage_limit else 0,
            network=self._reach(box, offline),
            env=filled_in(box.env, self._variables, f"{table}.env"),
            workdir=box.workdir,
            image_help=_image_help(name, of, image),
        )

    def _reach(self, box: TaskBox, offline: Literal["agent", "none"]) -> Reach:
        """What a sandbox reaches; `offline`: what stands for no network. Raises TaskRefused."""
        if self._network is not None and self._network != "task":
            return offline if self._network == "agent" else self._network
        if box.network_refused is not None:
            raise box.network_refused
        if box.network == "no-network" or not box.network:
            return offline
        if box.network != "public":
            return list(box.network)
        if self._network == "task":
            return "open"
        raise TaskRefused(
            "",
            "has a public network, which needs the option 'network'. To allow public networks, set "
            "'network' to 'task'. To give all tasks the same network, set 'network' to 'agent', "
            "for example",
        )


def _image_help(task: str, key: str, image: str) -> str:
    """What to do if the sandbox service has no image; `key`: of the box in the option `images`."""
    wants = f"uses the image {image!r}" if image else "has a Dockerfile, which must be built"
    return (
        f"The task folder {task!r} {wants}. To use another image, set the option 'images' of the "
        f'environment: images: {{{key}: IMAGE}}. For all tasks: images: {{"*": IMAGE}}. The '
        "backend bubblewrap has the image 'host', with the programs of the service's machine."
    )

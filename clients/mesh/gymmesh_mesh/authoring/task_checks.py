"""Checks whether a mesh's environments accept tasks, before any service is opened or paid for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import DefinitionError, TaskInvalid
from gymmesh_resource.registry import environment_names, make_environment, named_object
from gymmesh_resource.rewards import Rewards
from gymmesh_resource.task import Task
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.text.authors_code import as_exception

_PAYLOAD: Final = "payload_json"
_LOGGER: Final = logging.getLogger("gymmesh.mesh")


class TaskChecks:
    """Asks environments to check tasks by `check_task`, which is pure and fast.

    Each environment is made when the first task names it, and is not opened.
    """

    def __init__(
        self,
        environments: Mapping[str, EnvironmentConfig],
        made: Mapping[str, Environment[Any]] = MappingProxyType({}),
    ) -> None:
        """Args:
        made: environments that the caller made itself, in place of what would be made.
        """
        self._configs = environments
        self._made = {
            name: (one, Rewards(one, environments[name].rewards, named_object))
            for name, one in made.items()
        }
        self._unable: Counter[str] = Counter()

    @staticmethod
    def of_installed() -> TaskChecks:
        """The environments of installed packages, by name, with their default options."""
        return TaskChecks({name: EnvironmentConfig(use=name) for name in environment_names()})

    def row_problem(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """As `problem`, for a row that names its environment."""
        try:
            return self.problem(Task.of(row).message)
        except TaskInvalid as error:
            return error.field, error.problem

    def problem(self, task: rollout_pb2.Task) -> tuple[str, str] | None:
        """The key and the reason why the task's environment would reject the task. None if the
        environment would accept the task, is not known here, or can't decide before it is open.

        Raises:
            ConfigError: the environment cannot be made.
        """
        name = task.environment
        if name not in self._configs:
            return None
        environment, rewards = self._environment(name)
        try:
            seen = Task(task)
            seen.check()
            rewards.check(seen)
            environment.check_task(seen)
        except TaskInvalid as error:
            key = "" if error.field == _PAYLOAD else error.field
            return key, f"{error.problem}; environment {name!r} rejects the row"
        except BaseException as error:
            as_exception(error)  # lets Ctrl-C pass
            # A fault of the environment's is no fault of the row's; the rollouts will tell.
            _LOGGER.debug("environment %s failed in check_task", name, exc_info=True)
            self._unable[name] += 1
        return None

    def harbor_folder(
        self, task: rollout_pb2.Task
    ) -> Mapping[str, tuple[bytes, int]] | tuple[str, str]:
        """The task as a task folder of Harbor: contents and permission bits by path. If the task
        can't be such a folder: the key and the reason.

        Raises:
            ConfigError: the environment is not known, or cannot be made.
        """
        name = task.environment
        if name not in self._configs:
            raise ConfigError("is not in the configuration", path=f"environments.{name}")
        environment, _ = self._environment(name)
        try:
            files = environment.harbor_folder(Task(task))
        except TaskInvalid as error:
            return error.field, error.problem
        return {path: (file.content, file.mode) for path, file in files.items()}

    @property
    def unable(self) -> dict[str, int]:
        """For each environment, the number of tasks whose check failed with an exception."""
        return dict(sorted(self._unable.items()))

    def _environment(self, name: str) -> tuple[Environment[Any], Rewards]:
        if name not in self._made:
            config = self._configs[name]
            try:
                made = make_environment(config.use, config.options)
                self._made[name] = made, Rewards(made, config.rewards, named_object)
            except DefinitionError as error:
                raise ConfigError(str(error), path=f"environments.{name}") from None
        return self._made[name]

"""TRL's `environment_factory` under the name that it had first; it is in `gymmesh_trainers.trl`."""

from gymmesh_trainers.trl.environment import TrlEnvironment, TrlEnvironments

__all__ = ["TrlEnvironment", "TrlEnvironments"]

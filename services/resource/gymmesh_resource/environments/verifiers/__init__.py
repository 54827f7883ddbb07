"""The verifiers environment: tasksets and environments of Prime Intellect's verifiers.

environment  the environment: sessions, episodes, verdicts
results      what an episode came to, as a verdict or a failure (pure)
runner       the other side, in verifiers' own interpreter (run as a file)
"""

from gymmesh_resource.environments.verifiers.environment import VerifiersEnvironment

__all__ = ["VerifiersEnvironment"]

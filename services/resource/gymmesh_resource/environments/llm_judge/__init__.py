"""The llm_judge environment: answers judged by a second model."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.llm_judge.environment import (
        LlmJudgeEnvironment as LlmJudgeEnvironment,
    )


__getattr__ = lazy_class(__name__, "LlmJudgeEnvironment")

__all__ = [
    "LlmJudgeEnvironment",
]

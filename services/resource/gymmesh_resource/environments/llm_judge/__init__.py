"""The llm_judge environment: answers judged by a second model."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._late import late_class
from gymmesh_resource.environments.llm_judge.control import (
    HARMLESS,
    AnswerRefused,
    AnswerUnjudged,
    judged,
)
from gymmesh_resource.environments.llm_judge.judge import Equivalence, Judge, UnreadableReply
from gymmesh_resource.environments.llm_judge.rows import question

if TYPE_CHECKING:
    from gymmesh_resource.environments.llm_judge.environment import (
        LlmJudgeEnvironment as LlmJudgeEnvironment,
    )


__getattr__ = late_class(__name__, "LlmJudgeEnvironment")

__all__ = [
    "HARMLESS",
    "AnswerRefused",
    "AnswerUnjudged",
    "Equivalence",
    "Judge",
    "LlmJudgeEnvironment",
    "UnreadableReply",
    "judged",
    "question",
]

"""The question to a judge, in each mode. The material in the blocks already has its markers."""

from __future__ import annotations

from collections.abc import Mapping

SYSTEM = "You judge answers, strictly and impartially, by nothing but what you are asked to check."

_EQUIVALENCE = """\
Decide whether answer B means the same as answer A, as an answer to the question below. Answer A \
is the reference and is right. Wording, formatting, and a more or less rounded form of the same \
figure make no difference; a missing part, an added claim that contradicts A, another unit or \
another value do. An answer that lists several candidates is not equivalent to one of them.

Question:
{question}

Answer A:
{expected_answer}

Answer B:
{generated_answer}

Give your reasons in a few sentences. Then write one line with {equal} if they are equivalent, \
or with {not_equal} if they are not. Write neither of the two anywhere else."""

CRITERION = """\
Check one thing about the response below.

Conversation before the response:
{context}

Response:
{response}

What to check: does the response satisfy the following, or is the answer to it yes?
{criterion}

Give your reasons in a few sentences. Then write [[YES]] or [[NO]] alone on the last line."""

_SCORE = """\
Rate the response below on a scale from {least:g} (worst) to {most:g} (best).

Question:
{question}
{reference}
Response:
{response}

What to look at: {instructions}

Give your reasons in a few sentences. Then write the score in double brackets alone on the last \
line, such as [[{example:g}]]."""

_QUALITIES = "whether the response is right, complete, clear, and does what was asked."


def check_template(template: str) -> None:
    """Raise ValueError unless a template for equivalence can be filled in."""
    try:
        names = ("question", "expected_answer", "generated_answer")
        filled = template.format(**{name: f"\0{name}\0" for name in names})
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ValueError(
            f"judge_prompt_template cannot be filled in ({error}). Use only the placeholders "
            "{question}, {expected_answer} and {generated_answer}, and write {{ for a brace"
        ) from None
    if "\0generated_answer\0" not in filled:
        raise ValueError("judge_prompt_template lacks {generated_answer}")


def equivalence_prompt(
    blocks: Mapping[str, str], template: str | None, equal: str, not_equal: str
) -> str:
    """The question whether `generated_answer` is equivalent to `expected_answer`."""
    if template is not None:
        return template.format(**blocks)
    return _EQUIVALENCE.format(**blocks, equal=equal, not_equal=not_equal)


def score_prompt(blocks: Mapping[str, str], instructions: str, least: float, most: float) -> str:
    """The question for a score of `response`; `reference` is optional among the blocks."""
    reference = f"\nA reference answer:\n{blocks['reference']}\n" if "reference" in blocks else ""
    return _SCORE.format(
        question=blocks["question"],
        response=blocks["response"],
        reference=reference,
        instructions=instructions or _QUALITIES,
        least=least,
        most=most,
        example=(least + most) // 2,
    )


def reminder(labels: str) -> str:
    """The message to a judge whose reply had no verdict."""
    return (
        f"Your reply has no verdict that can be read. Reply with nothing but one of: {labels}. "
        "Nothing else about your task has changed."
    )

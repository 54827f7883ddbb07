"""Tasks of Inspect, as its users write them. Run in the interpreter that has inspect-ai."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, accuracy, choice, match, mean, model_graded_qa, scorer
from inspect_ai.solver import generate, multiple_choice, solver, system_message, use_tools
from inspect_ai.tool import bash, tool
from inspect_ai.util import sandbox


@tool
def add() -> Any:
    async def execute(a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: the first
            b: the second
        """
        return str(a + b)

    return execute


def sums_of(count: int, text: str = "What is {a} + {b}?") -> list[Sample]:
    return [
        Sample(input=text.format(a=n * 7, b=n * 3 + 1), target=str(n * 10 + 1), id=f"sum-{n}")
        for n in range(count)
    ]


@task
def sums(count: int = 40) -> Task:
    """With tools, and a prompt that the solver adds to."""
    solve = [system_message("You add numbers."), use_tools(add()), generate()]
    return Task(dataset=sums_of(count), solver=solve, scorer=match(), message_limit=30)


@task
def letters(count: int = 20) -> Task:
    """The solver shows the choices, and reads the answer."""
    samples = [
        Sample(
            input=f"Which is {n}?", choices=[str(n + one) for one in (3, 1, 0, 2)], target="C", id=n
        )
        for n in range(count)
    ]
    return Task(dataset=samples, solver=multiple_choice(), scorer=choice())


@task
def graded(count: int = 10) -> Task:
    """A model judges, with partial credit."""
    judge = model_graded_qa(partial_credit=True)
    return Task(dataset=sums_of(count), solver=generate(), scorer=judge)


@scorer(metrics={"near": [mean()], "exact": [mean()]})
def distance() -> Any:
    async def score(state: Any, target: Any) -> Score:
        words = state.output.completion.rstrip(".").split()
        off = abs(int(words[-1]) - int(target.text))
        explanation = f"off by {off}"
        return Score(value={"near": 1 / (1 + off), "exact": off == 0}, explanation=explanation)

    return score


@task
def partial(count: int = 10) -> Task:
    """Several values, and a second scorer."""
    return Task(dataset=sums_of(count), solver=generate(), scorer=[distance(), match()])


@scorer(metrics=[accuracy()])
def file_has() -> Any:
    async def score(state: Any, target: Any) -> Score:
        try:
            text = await sandbox().read_file("out.txt")
        except FileNotFoundError:
            return Score(value="I", explanation="there is no out.txt")
        listed = await sandbox().exec(["cat", "made/by-setup", "data/in.txt"])
        right = text.strip() == target.text and listed.stdout == f"setup\n{state.sample_id}"
        return Score(value="C" if right else "I", answer=text)

    return score


@task
def files(count: int = 10) -> Task:
    """In a sandbox, with files and a setup script."""
    samples = [
        Sample(
            input=f"Write {n} into out.txt.",
            target=str(n),
            id=f"file-{n}",
            files={"data/in.txt": f"file-{n}"},
            setup="mkdir -p made && echo setup >made/by-setup",
        )
        for n in range(count)
    ]
    solve = [use_tools(bash(timeout=20)), generate()]
    return Task(dataset=samples, solver=solve, scorer=file_has(), sandbox="local")


@task
def agent(count: int = 10) -> Task:
    """An agent that calls the model itself, until it submits an answer."""
    dataset = sums_of(count, "Please add {a} + {b}?")
    return Task(dataset=dataset, solver=react(tools=[add()]), scorer=match())


@scorer(metrics=[accuracy()])
def faulty_score() -> Any:
    async def score(state: Any, target: Any) -> Score | None:
        match target.text:
            case "raises":
                raise RuntimeError("the scorer broke")
            case "hangs":
                await asyncio.Event().wait()
            case "dies":
                os._exit(7)
            case "unscored":
                return Score.unscored(explanation="nothing to score")
            case "word":
                return Score(value="maybe")
            case "nothing":
                return None
        return Score(value="C")

    return score


@solver
def faulty_solver() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        if state.target.text == "solver":
            raise RuntimeError("the solver broke")
        return await generate(state)

    return solve


@task
def faulty() -> Task:
    kinds = ("raises", "hangs", "dies", "unscored", "word", "nothing", "solver", "good")
    dataset = [Sample(input=f"Say {kind}.", target=kind, id=kind) for kind in kinds]
    return Task(dataset=dataset, solver=faulty_solver(), scorer=faulty_score())


@task
def broken() -> Task:
    samples = [Sample(input="Which?", choices=["a", "b"], target="A", id="good")]
    samples.append(Sample(input="Which?", choices=[], target="A", id="bad"))
    return Task(dataset=samples, solver=multiple_choice(), scorer=choice())

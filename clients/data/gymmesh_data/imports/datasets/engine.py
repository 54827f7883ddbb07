"""A row of a known data set as a task, by its recipe. Pure."""

from __future__ import annotations

from string import Template

from gymmesh_data.imports.datasets.making import TRANSFORMATIONS
from gymmesh_data.imports.datasets.recipes import Recipe
from gymmesh_data.imports.imported import Imported
from gymmesh_data.imports.items import RowRefused, items_of, tools_of
from gymmesh_data.rollout import Json


def of_recipe(recipe: Recipe, row: Json, *, only_made: bool = False) -> Imported:
    """The task that a row is. Raises RowRefused for one that does not fit.

    Columns of which nothing is made stay keys of the task, unless `only_made`.
    """
    if problem := recipe.problem(row):
        raise RowRefused(problem)
    columns = {name: shape.column_in(name, row) for name, shape in recipe.columns.items()}
    values: Json = {name: row.get(column) for name, column in columns.items()}
    for name, made in recipe.made.items():
        arguments = [values[one] for one in made.of]
        try:
            values[name] = TRANSFORMATIONS[made.by](*arguments)
        except RowRefused as refused:
            told = next((columns[one] for one in reversed(made.of) if one in columns), name)
            raise RowRefused(f"{told}: {refused}") from None
    if recipe.messages:
        prompt = items_of(values[recipe.messages], recipe.messages)
    else:
        prompt = items_of(_filled(recipe.prompt, values), "prompt")
    imported = Imported(prompt)
    if recipe.tools:
        imported.tools = tools_of(values[recipe.tools], recipe.tools)
    imported.task_id = _filled(recipe.task_id, values)
    imported.payload = _payload(recipe, row, columns, values, only_made=only_made)
    imported.environment = recipe.environment
    imported.text_answer = recipe.text_answers
    return imported


def _payload(
    recipe: Recipe, row: Json, columns: dict[str, str], values: Json, *, only_made: bool
) -> Json:
    used = {columns[name] for name in recipe.used if name in columns}
    payload: Json = {}
    if not only_made:
        payload = {key: row[key] for key in row if key not in used and row[key] is not None}
    payload |= {name: values[name] for name in recipe.keep}
    payload |= recipe.set
    payload |= {name: values[name] for name, made in recipe.made.items() if not made.hidden}
    return payload


def _filled(template: str, values: Json) -> str:
    """The text of a template. Values are put in as they are: nothing in them is a template."""
    names = Template(template).get_identifiers()
    texts = {name: str(values[name]).strip("\r\n") for name in names}
    return Template(template).substitute(texts)

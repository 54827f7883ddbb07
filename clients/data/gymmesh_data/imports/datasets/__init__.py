"""Public data sets, recognized by their columns.

recipes.toml   the data sets: columns, prompt, keys, and the environment that scores
recipes.py     the recipes as types, checked when they are read
shapes.py      which recipe some rows are of; what to ask where it is none (pure)
engine.py      a row as a task, by its recipe (pure)
making.py      the transformations by name
texts.py, options.py, asserts.py, functions.py, bfcl.py: the transformations (pure)
"""

from gymmesh_data.imports.datasets.engine import of_recipe
from gymmesh_data.imports.datasets.making import TRANSFORMATIONS
from gymmesh_data.imports.datasets.recipes import ColumnShape, Recipe, recipe_named, recipes
from gymmesh_data.imports.datasets.shapes import recipe_of, unknown_shape

__all__ = [
    "TRANSFORMATIONS",
    "ColumnShape",
    "Recipe",
    "of_recipe",
    "recipe_named",
    "recipe_of",
    "recipes",
    "unknown_shape",
]

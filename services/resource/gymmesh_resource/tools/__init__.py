"""Tools: methods marked with `@tool`, the schemas that models see, and reading their arguments."""

from .arguments import (
    BadArguments,
    describe_parameters,
    read_arguments,
    read_object,
)
from .definition import Tool, Toolset, answer_of, tool
from .docstrings import read_docstring
from .signatures import arguments_schema, arguments_type, takes_session

__all__ = [
    "BadArguments",
    "Tool",
    "Toolset",
    "answer_of",
    "arguments_schema",
    "arguments_type",
    "describe_parameters",
    "read_arguments",
    "read_docstring",
    "read_object",
    "takes_session",
    "tool",
]

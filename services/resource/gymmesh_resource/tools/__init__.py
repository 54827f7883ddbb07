"""Tools: methods marked with `@tool`, the schemas that models see, and reading their arguments."""

from gymmesh_resource.tools.arguments import BadArguments, read_arguments, read_object
from gymmesh_resource.tools.definition import Toolset, answer_of, tool
from gymmesh_resource.tools.docstrings import read_docstring
from gymmesh_resource.tools.image import Image
from gymmesh_resource.tools.result import ToolResult
from gymmesh_resource.tools.signatures import arguments_schema, arguments_type

__all__ = [
    "BadArguments",
    "Image",
    "ToolResult",
    "Toolset",
    "answer_of",
    "arguments_schema",
    "arguments_type",
    "read_arguments",
    "read_docstring",
    "read_object",
    "tool",
]

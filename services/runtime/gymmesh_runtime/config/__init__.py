"""Configuration: reads YAML files, overrides and environment variables into msgspec Structs.

The loader knows no service. Its caller passes the Struct to fill.
"""

from gymmesh_runtime.config.choices import explained
from gymmesh_runtime.config.errors import ConfigError, nearest
from gymmesh_runtime.config.files import read_text, read_token_file
from gymmesh_runtime.config.load import load_config, merged_document
from gymmesh_runtime.config.modules import file_spec, named_module
from gymmesh_runtime.config.secret import Secret, public_view

__all__ = [
    "ConfigError",
    "Secret",
    "explained",
    "file_spec",
    "load_config",
    "merged_document",
    "named_module",
    "nearest",
    "public_view",
    "read_text",
    "read_token_file",
]

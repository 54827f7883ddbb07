"""The web_search environment: questions answered by searching and reading documents."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._late import late_class
from gymmesh_resource.environments.web_search.documents import DocumentError, read_documents
from gymmesh_resource.environments.web_search.index import build_index

if TYPE_CHECKING:
    from gymmesh_resource.environments.web_search.environment import (
        WebSearchEnvironment as WebSearchEnvironment,
    )


__getattr__ = late_class(__name__, "WebSearchEnvironment")

__all__ = [
    "DocumentError",
    "WebSearchEnvironment",
    "build_index",
    "read_documents",
]

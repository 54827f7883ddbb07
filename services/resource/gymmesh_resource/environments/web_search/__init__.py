"""The web_search environment: questions answered by searching and reading documents."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.web_search.environment import (
        WebSearchEnvironment as WebSearchEnvironment,
    )


__getattr__ = lazy_class(__name__, "WebSearchEnvironment")

__all__ = [
    "WebSearchEnvironment",
]

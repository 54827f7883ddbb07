"""The web_search environment: questions answered by searching and reading documents."""

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import WebSearchEnvironment as WebSearchEnvironment

__all__ = ["WebSearchEnvironment"]

__getattr__ = late_class(__name__, "WebSearchEnvironment")

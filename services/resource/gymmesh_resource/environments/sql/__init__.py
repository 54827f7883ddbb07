"""The sql environment: a question about a database, answered by a query that is run."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.sql.environment import SqlEnvironment as SqlEnvironment

__all__ = ["SqlEnvironment"]

__getattr__ = lazy_class(__name__, "SqlEnvironment")

"""Environment variables in values: `${NAME}` and `${NAME:-default}`; `$${` stands for `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gymmesh_runtime.config.tree import Leaf

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


def interpolate(leaf: Leaf, path: str, env: Mapping[str, str]) -> Leaf:
    """The scalar with its references replaced.

    As in a shell, the default of `${NAME:-default}` also stands in for an empty variable.

    Raises:
        ConfigError: a variable that is not set and has no default, or a broken reference.
    """
    if "${" not in leaf.text:
        return leaf

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match[1], match[2]
        if name is None:
            problem = "holds '${' that is not ${NAME} or ${NAME:-default}; write $${ for the text"
            raise leaf.mark.error(problem, path)
        value = env.get(name)
        if default is not None:
            return value or default
        if value is None:
            problem = (
                f"the environment variable {name} is not set; set it or write ${{{name}:-default}}"
            )
            raise leaf.mark.error(problem, path)
        return value

    return Leaf(_REFERENCE.sub(replace, leaf.text), leaf.plain, leaf.mark)

"""What the commands for authors of environments do: trials, conformance, audits of verifiers, tools
over MCP, tasks, checks of a configuration.
"""

from gymmesh_mesh.authoring.auditing import audit_address, audit_here
from gymmesh_mesh.authoring.environments import (
    About,
    Finding,
    TokenizerName,
    about,
    generate_reasoning_gym,
    index_documents,
    installed,
    is_index,
    places,
    trial,
)
from gymmesh_mesh.authoring.mcp_session import (
    McpSession,
    OfferedEnvironment,
    environment_alone,
    environment_at,
)
from gymmesh_mesh.authoring.placing import rows_of_examples, with_environment
from gymmesh_mesh.authoring.task_checks import TaskChecks
from gymmesh_mesh.authoring.validating import problems_of, wrong_classes

__all__ = [
    "About",
    "Finding",
    "McpSession",
    "OfferedEnvironment",
    "TaskChecks",
    "TokenizerName",
    "about",
    "audit_address",
    "audit_here",
    "environment_alone",
    "environment_at",
    "generate_reasoning_gym",
    "index_documents",
    "installed",
    "is_index",
    "places",
    "problems_of",
    "rows_of_examples",
    "trial",
    "with_environment",
    "wrong_classes",
]

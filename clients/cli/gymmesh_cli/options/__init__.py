"""Options of several commands, or of one with many options, and the objects built from them.

shared.py              the mesh, the output, where a service listens, and single options
security.py            how a command authenticates itself to remote services
pace.py                how a run is dispatched
shards.py              runs shared by several collectors
track.py               figures for a tracker
stream_address.py      where trainers on other machines can read a run's groups
groups.py              how options become one argument
kept_configuration.py  the configuration of a resumed run
"""

from gymmesh_cli.options.groups import together
from gymmesh_cli.options.kept_configuration import KEPT_CONFIGURATION
from gymmesh_cli.options.pace import pace_options
from gymmesh_cli.options.security import SecurityOptions, security_options
from gymmesh_cli.options.shards import shard_options
from gymmesh_cli.options.shared import (
    FILE,
    MeshOptions,
    OutputOptions,
    agent_option,
    environments_option,
    json_option,
    listening_options,
    mesh_options,
    number_ids_option,
    other_agents_option,
    output_options,
    place_argument,
    reward_range_option,
    rollouts_argument,
    skip_invalid_option,
    tasks_option,
    timeout_option,
)
from gymmesh_cli.options.stream_address import StreamAddress, stream_address_options
from gymmesh_cli.options.track import TrackOptions, track_options

__all__ = [
    "FILE",
    "KEPT_CONFIGURATION",
    "MeshOptions",
    "OutputOptions",
    "SecurityOptions",
    "StreamAddress",
    "TrackOptions",
    "agent_option",
    "environments_option",
    "json_option",
    "listening_options",
    "mesh_options",
    "number_ids_option",
    "other_agents_option",
    "output_options",
    "pace_options",
    "place_argument",
    "reward_range_option",
    "rollouts_argument",
    "security_options",
    "shard_options",
    "skip_invalid_option",
    "stream_address_options",
    "tasks_option",
    "timeout_option",
    "together",
    "track_options",
]

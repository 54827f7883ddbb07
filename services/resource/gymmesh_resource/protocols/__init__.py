"""An environment for clients of other frameworks: OpenEnv, ORS, NeMo Gym.

facade.py       the one façade: sessions for tasks, tools, the environment's turns, verdicts
session.py      a session, with its messages and calls
tasks.py        the tasks to choose from
server.py       one HTTP port: access, bounds, life cycle
openenv/ ors/ nemo_gym/   a thin HTTP edge each
"""

from gymmesh_resource.protocols.content import ShownImage, ShownPart, parts_of_reply, schema_of
from gymmesh_resource.protocols.facade import EnvironmentFacade, OfferedService
from gymmesh_resource.protocols.server import ProtocolServer
from gymmesh_resource.protocols.session import ProtocolSession, words_of

__all__ = [
    "EnvironmentFacade",
    "OfferedService",
    "ProtocolServer",
    "ProtocolSession",
    "ShownImage",
    "ShownPart",
    "parts_of_reply",
    "schema_of",
    "words_of",
]

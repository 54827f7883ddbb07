"""What a site says of its sessions is read anew whenever it says something else."""

from __future__ import annotations

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.session import Offer, Site
from gymmesh_agent.terms import tools_key
from gymmesh_responses import new_message
from gymmesh_runtime.peers import PeerDirectory

_RESOURCE = "gymmesh.resource.v1.ResourceService"


class Told:
    """A site, told of one session after another."""

    def __init__(self) -> None:
        directory = PeerDirectory()
        instance = discovery_pb2.Instance(id="e", service=_RESOURCE, name="env")
        directory.add_direct(instance, {_RESOURCE: object()})
        self._site = Site(directory, instance, None)
        self._count = 0

    def offer(
        self, *tools: str, say: str = "", version: str = "1", multi_turn: bool = False
    ) -> Offer:
        self._count += 1
        opened = resource_pb2.CreateSessionResponse(
            session_id=f"s{self._count}",
            seed=self._count,
            environment_version=version,
            multi_turn=multi_turn,
            tools=[_tool(name) for name in tools],
            items=[new_message("user", say)] if say else [],
        )
        offer = self._site.offer(opened, opened.session_id, opened.seed)
        assert (offer.version, offer.multi_turn) == (version, multi_turn)
        assert list(offer.tools) == list(opened.tools)
        assert list(offer.items) == list(opened.items)
        assert offer.tools_key == tools_key(opened.tools)
        return offer


def _tool(name: str) -> responses_pb2.Tool:
    return responses_pb2.Tool(function=responses_pb2.FunctionTool(name=name))


async def test_sessions_that_are_alike_share_what_was_read_of_one() -> None:
    site = Told()
    site.offer("a", "b")
    second = site.offer("a", "b")
    assert site.offer("a", "b") is second
    assert site.offer("a", "b") is second


async def test_whatever_differs_is_read() -> None:
    site = Told()
    for _ in range(3):  # kept by the end
        site.offer("a")
    site.offer("b")
    site.offer("a", "b")
    site.offer()
    site.offer("a")
    site.offer("a")
    site.offer("a", version="2")
    site.offer("a", version="2", multi_turn=True)
    site.offer("a", version="2", multi_turn=True)
    site.offer("a", say="Begin.")
    site.offer("a", say="Begin.")
    site.offer("a", say="Begin.")
    site.offer("a", say="Go on.")
    site.offer("a")

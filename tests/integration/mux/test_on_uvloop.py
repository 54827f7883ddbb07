"""Some of the tests of the mux once more, on the event loop of services."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop

from gymmesh_runtime.peers import PeerDirectory
from tests.integration.mux import test_bad_peers, test_falling_back, test_sharing


@pytest.mark.parametrize(
    "test",
    [
        test_sharing.test_all_who_call_one_address_share_one_stream,
        test_sharing.test_ten_thousand_calls_in_flight_on_one_stream,
        test_sharing.test_small_calls_overtake_a_large_one,
        test_falling_back.test_a_peer_without_the_mux_is_asked_once,
        test_bad_peers.test_a_peer_that_stands_still_is_bounded_by_deadlines,
    ],
)
def test_on_uvloop(test: Any) -> None:
    """The event loop of services."""

    async def run() -> None:
        one = PeerDirectory()
        try:
            await test(one)
        finally:
            await one.close()

    uvloop.run(run())

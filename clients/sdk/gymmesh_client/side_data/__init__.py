"""Side data of model calls, which rollouts carry by reference: read from folders, and fetched.

reading   the numbers of a reference, from the folder that it names or another one
fetching  the numbers from a model service, for a reader that sees no such folder
"""

from gymmesh_client.side_data.fetching import SideDataPeer, fetch_side_data
from gymmesh_client.side_data.reading import SideDataUnreadable, read_side_data, side_data_path

__all__ = [
    "SideDataPeer",
    "SideDataUnreadable",
    "fetch_side_data",
    "read_side_data",
    "side_data_path",
]

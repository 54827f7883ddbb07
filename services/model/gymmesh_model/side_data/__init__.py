"""Side data: tensors beside the tokens of calls, stored by digest and carried by reference.

store     the folder: writes rows, reads them, deletes the oldest
outbox    the rows of one call, from the backend to the references in its answer
"""

from gymmesh_model.side_data.outbox import stored_rows
from gymmesh_model.side_data.store import PIECE_BYTES, SideDataStore

__all__ = ["PIECE_BYTES", "SideDataStore", "stored_rows"]

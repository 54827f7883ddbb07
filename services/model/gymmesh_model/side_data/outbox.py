"""The side data of one call: what is new of it is stored before the answer goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gymmesh_model.side_data.store import SideDataStore
from gymmesh_model.tokens import Prefix, TokenRecord, rows_known


async def stored_rows(store: SideDataStore, record: TokenRecord, prefix: Prefix | None) -> None:
    """Stores the rows that the calls before don't have, and puts the references into `record`.

    The rows themselves are given up. prefix: the call's. Raises MeshError SIDE_DATA_NOT_STORED.
    """
    continues = prefix is not None and record.prefix_tokens > 0
    known: Mapping[str, int] = prefix.side_rows if prefix is not None and continues else {}
    given, record.side_data = record.side_data, []
    new = [rows.behind(known.get(rows.name, 0)) for rows in given]
    record.stored = await asyncio.gather(*[store.put(rows) for rows in new if rows.tokens])
    record.side_rows = {
        **known,
        **{
            side.name: rows_known(known, side.name, side.first_token, side.tokens)
            for side in record.stored
        },
    }

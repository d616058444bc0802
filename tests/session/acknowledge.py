"""A process to kill: writes a log in batches, and says after each flush how many events are acknowledged.

python acknowledge.py ROOT COMPRESSION
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from onetake.session.events import make_header
from onetake.session.log import SessionLog
from onetake.session.store import SessionStore


async def main(root: str, compression: str) -> None:
    """Write until killed."""
    log = SessionLog(make_header("killed", created_at=0))
    store = SessionStore(Path(root), compression=compression, project="p")  # type: ignore[arg-type]
    writer = store.open(log)
    log.append("turn/start", {"turn": 1})
    while True:
        for _ in range(random.randrange(1, 40)):
            text = random.randbytes(random.randrange(2000)).hex()
            chunk = {"type": "text-delta", "index": 0, "text": text}
            log.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})
        await writer.flush()
        print(log.next_seq, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

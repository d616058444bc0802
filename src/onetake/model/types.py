"""The shapes that model data has while it runs, and the ids that messages get.

Chunks and messages are logged verbatim and must give back unknown fields untouched, so they stay plain JSON
dictionaries instead of typed records. The aliases below only say what is meant where.

Blocks (`Block`), by `type`:

- `text` and `reasoning`: `text`
- `image`: adapter-neutral source fields, never interpreted here
- `tool-call`: `id`, `name`, `arguments` (the raw JSON text that the model wrote, never re-encoded)
- `tool-result`: `toolCallId`, `content` (blocks), `isError`

Messages (`Message`): `role` (system, user, assistant), `content` (blocks), `source`
(`{"kind": "user" | "plugin" | "model" | "tool", ...}`), `id`.

Chunks (`Chunk`), by `type`:

- `block-start`: `index`, `blockType`
- `text-delta` and `reasoning-delta`: `index`, `text`
- `tool-call-delta`: `index`, `id`, `name`?, `argumentsDelta`
- `block-end`: `index`, `block` (the whole block)
- `usage`: `usage`, disjoint token counts (`inputTokens` leaves cache reads out)
- `finish`: `reason`, `replayState`?; nothing follows it

Finish reasons (`Reason`), by `kind`: `stop`, `tool-calls`, `max-tokens`, and with a `failure` (see
`onetake.model.failures`) `error` and `aborted`.
"""

from __future__ import annotations

import os
from typing import Any

Json = Any
Block = dict[str, Any]
Message = dict[str, Any]
Chunk = dict[str, Any]
Reason = dict[str, Any]
Usage = dict[str, int]


def new_id() -> str:
    """Return a fresh random id in the form of a version 4 UUID.

    Built by hand because importing `uuid` costs every agent start more than the ids of a session do.
    """
    raw = bytearray(os.urandom(16))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

"""Texts in which values of a run are quoted, whole or nearly, beside what looks like their names.

A model repeats paths and ids, and a stream cuts them wherever it likes; a file holds `{{cwd}}`, because
somebody documents a tool like ours. `quoting_texts` draws such texts for the values that a subject knows,
`cuts` draws where a stream is cut, and `cut` cuts it there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import strategies as st

from onetake.fixture.grammar import token
from onetake.fixture.tokens import paired, utf16_units

BODIES = (
    *("cwd", "cwd|j", "sessionId", "sessionId:1", "msg:1.1", "msg:1/1.1"),
    *("tag:1", "tag:2/9", "system:a", "tools"),
)
"""Bodies of names, known and unknown ones."""
_BITS = (
    *("{", "}", "{{", "}}", "\\", "|j", ":", "1", "a", " ", "\n", "\\n", "%2F", "/"),
    *("\ud83d", "\ude00", "😀"),
)


def quoting_texts(values: Collection[str]) -> st.SearchStrategy[str]:
    """Draw a text that quotes some of these values, wholly or nearly, and names, escaped or not."""
    names = [token(body) for body in BODIES]
    escaped = ["{{\\" + body + "}}" for body in BODIES]
    quoted = [*values, *(value[:-3] for value in values if len(value) > 3)]
    pieces = st.sampled_from([*names, *escaped, *quoted, *_BITS]) | st.text(max_size=4)
    return st.lists(pieces, max_size=12).map("".join)


def cuts() -> st.SearchStrategy[list[int]]:
    """Draw where a stream is cut, for `cut`."""
    return st.lists(st.integers(0, 400), max_size=8)


def cut(text: str, places: Sequence[int]) -> list[str]:
    """The text in pieces, cut at the places (modulo its length), between the halves of a character too."""
    units = utf16_units(text)
    edges = sorted({place % (len(units) + 1) for place in places})
    return [paired(units[start:end]) for start, end in zip([0, *edges], [*edges, len(units)], strict=True)]

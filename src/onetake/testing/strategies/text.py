"""Texts and JSON values that are hostile and still readable."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st


@cache
def texts() -> st.SearchStrategy[str]:
    """Draw a text of any characters, among them line ends of all kinds, NUL, marks and lone surrogates."""
    return st.text(
        st.one_of(
            st.characters(), st.sampled_from("\n\r\u2028\u0085\ufeff:\0"), st.characters(categories=["Cs"])
        ),
        max_size=20,
    )


@cache
def json_values() -> st.SearchStrategy[Any]:
    """Draw a JSON value."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | texts(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=8,
    )

"""Token counts as OpenAI's formats report them: the prompt's with cache reads, reasoning within the output.

Ours are disjoint from cache reads. Both formats say the same under other names.
"""

from __future__ import annotations

from typing import Any

from onetake.model.types import Usage


def disjoint(prompt: Any, output: Any, cached: Any, reasoning: Any) -> Usage:
    """Our counts: input and output always, the others where the provider reports them."""
    reads, thought = count(cached), count(reasoning)
    usage: Usage = {
        "inputTokens": max(0, (count(prompt) or 0) - (reads or 0)),
        "outputTokens": count(output) or 0,
    }
    if reads is not None:
        usage["cacheReadTokens"] = reads
    if thought is not None:
        usage["reasoningTokens"] = thought
    return usage


def reported(usage: Usage, prompt: str, output: str) -> dict[str, Any]:
    """The counts under the names of a format: `prompt` and `output` are how it calls the two sides."""
    read = usage.get("inputTokens", 0) + usage.get("cacheReadTokens", 0)
    said = usage.get("outputTokens", 0)
    counts: dict[str, Any] = {f"{prompt}_tokens": read, f"{output}_tokens": said, "total_tokens": read + said}
    if "cacheReadTokens" in usage:
        counts[f"{prompt}_tokens_details"] = {"cached_tokens": usage["cacheReadTokens"]}
    if "reasoningTokens" in usage:
        counts[f"{output}_tokens_details"] = {"reasoning_tokens": usage["reasoningTokens"]}
    return counts


def details(usage: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under a key; empty when there is none."""
    found = usage.get(key)
    return found if isinstance(found, dict) else {}


def count(value: Any) -> int | None:
    """A token count; None for what is none."""
    return value if type(value) is int and value >= 0 else None

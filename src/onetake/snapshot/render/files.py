"""The files surface: named files that an agent keeps outside of its workspace, such as its own session log.

What an agent persists is behaviour too: who loses a line of its log finds out when somebody resumes. Files
are named in suite.toml by patterns, `~/...` below the agent's HOME, anything else below the workspace. JSON
and JSONL files are rendered value by value, so that rules can name what varies in them by path
(`value.time`); other files line by line, or by their digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onetake import jsontext
from onetake.fixture.normalize import Rules
from onetake.snapshot.render.workspace import content_of, mode_of

FILE = "files.expected.jsonl"
HOME = "~/"


def render_files(
    roots: Mapping[str, str], patterns: Sequence[str], tokenize: Callable[[Any], Any], rules: Rules
) -> bytes:
    """Render the files that the patterns name, by path; a pattern that nothing matches is a row of its own.

    Paths may vary from run to run (a date, an id): rows are sorted as they are compared, after the rules.
    """
    groups = []
    for pattern in patterns:
        found = list(_matches(roots, pattern))
        groups += [list(_rows(*each)) for each in found] or [[{"path": pattern, "kind": "missing"}]]
    rendered = [
        b"".join(jsontext.dumps(tokenize(rules.apply(row))) + b"\n" for row in rows) for rows in groups
    ]
    return b"".join(sorted(rendered))


def _matches(roots: Mapping[str, str], pattern: str) -> Iterator[tuple[str, Path]]:
    """The regular files that a pattern names, each with how it is called."""
    home = pattern.startswith(HOME)
    root = Path(roots["home" if home else "cwd"])
    for path in sorted(root.glob(pattern.removeprefix(HOME))):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(root).as_posix()
            yield (f"{HOME}{name}" if home else name), path


def _rows(name: str, path: Path) -> Iterator[dict[str, Any]]:
    content = content_of(path)
    values = _values(name, content)
    yield {"path": name, "mode": mode_of(path), **({} if values is not None else content)}
    for value in values or ():
        yield {"path": name, "value": value}


def _values(name: str, content: Mapping[str, Any]) -> list[Any] | None:
    """The JSON values that a file holds; None for one that is no JSON."""
    lines = content.get("lines")
    if lines is None or not name.endswith((".json", ".jsonl")):
        return None
    texts = [line for line in lines if line] if name.endswith(".jsonl") else ["\n".join(lines)]
    try:
        return [jsontext.loads(text) for text in texts]
    except ValueError:
        return None

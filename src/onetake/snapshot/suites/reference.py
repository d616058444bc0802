"""`onetake help suite`: every key of suite.toml, every op of input.json, every file of a scenario.

The keys and ops come from the types that decode them, and the words from the docstrings under their fields;
so nothing here can be out of date, and what lacks a word fails the tests.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from onetake import jsontext
from onetake.replay.override import ENTRY_KEYS
from onetake.snapshot.suites import ops as script
from onetake.snapshot.suites import settings

WIDTH = 100
"""Characters of a line."""

_FILES = """\
  input.json                   the script; you write it
  session.jsonl                the recording: what the model says in a replay, and the log that the agent
                               must write; written by record. Children: session.1.jsonl, session.2.jsonl ...
  requests.expected.jsonl      what the agent sent to the model      (written by record and refresh)
  stdout.expected.jsonl        what it printed                       (likewise)
  workspace.expected.jsonl     the files it left, if `workspace` is a surface
  files.expected.jsonl         the files that [suite] files names, if `files` is a surface
  system-prompt.expected.md    only in a pin (pins_header = true): the prompt in full. All other recordings
                               name it by a token, {{system:PIN}}
  tool-schemas.expected.json   only in a pin: likewise the tool schemas, {{tools:PIN}}
  replay.override.json         only with overridden = true: what the model says instead; you write it
  workspace/                   you write it: copied into the empty directory in which the agent runs

  README.md, .gitignore, .gitattributes, hidden files and what git ignores may lie beside them.
"""


_SURFACES = f"SURFACE: {', '.join(settings.SURFACES)}"


def reference() -> str:
    """The whole text."""
    return "\n".join(
        [
            "A suite is a suite.toml and a folder for each of its scenarios. docs/suites.md has examples.\n",
            "SUITE.TOML\n",
            *_table("agent", settings.AgentTable),
            *_table("suite", settings.SuiteTable),
            *_table("gateway", settings.GatewayTable),
            *_table("scenarios.NAME", settings.ScenarioSettings),
            *_table("normalize", settings.Normalize, leave_out=settings.SURFACES),
            *_list("normalize.mint", settings.MintRule),
            *_table(
                "normalize.SURFACE", settings.SurfaceRules, more=f"SURFACE: {', '.join(settings.SURFACES)}"
            ),
            *_list("normalize.SURFACE.mask", settings.MaskRule),
            "THE FOLDER OF A SCENARIO\n",
            _FILES,
            "INPUT.JSON\n",
            *_fields(script.Script),
            "",
            "  each of permissionAnswers:",
            *_fields(script.PermissionAnswer),
            "",
            "  the steps (`?`: may be left out):",
            *_ops(),
            "",
            "  waitForFile of a prompt or a cancel is an object:",
            *_fields(script.WaitedFile),
            "",
            "REPLAY.OVERRIDE.JSON\n",
            *_override(),
            "",
        ]
    )


def words(module: Any) -> dict[str, dict[str, str]]:
    """Class -> the docstrings under its fields, and its own under the empty name."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            texts = found[node.name] = {"": ast.get_docstring(node) or ""}
            for field, after in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(after, ast.Expr)
                    and isinstance(after.value, ast.Constant)
                ):
                    texts[field.target.id] = " ".join(str(after.value.value).split())
    return found


_WORDS = {module.__name__: words(module) for module in (settings, script)}


def _said(kind: type[msgspec.Struct], name: str = "") -> str:
    return _WORDS[kind.__module__][kind.__name__].get(name, "")


def _table(
    name: str, kind: type[msgspec.Struct], leave_out: tuple[str, ...] = (), more: str = ""
) -> list[str]:
    return [f"  [{name}]{f'   {more}' if more else ''}", *_fields(kind, leave_out), ""]


def _list(name: str, kind: type[msgspec.Struct]) -> list[str]:
    return [f"  [[{name}]]", *_paragraph(_said(kind)), *_fields(kind), ""]


def _fields(kind: type[msgspec.Struct], leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in leave_out:
            yield _row(f"{field.encode_name}{_default(field)}", _said(kind, field.name))


def _default(field: msgspec.structs.FieldInfo) -> str:
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if default is msgspec.NODEFAULT:
        return " (needed)"
    return (
        ""
        if default is None or isinstance(default, msgspec.Struct)
        else f" = {jsontext.dumps(_plain(default)).decode()}"
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _ops() -> Iterator[str]:
    for op in get_args(script.Step):
        fields = [
            f"{field.encode_name}{'' if field.required else '?'}" for field in msgspec.structs.fields(op)
        ]
        name: str = op.__struct_config__.tag
        yield _row(f"{name} {{{', '.join(fields)}}}" if fields else name, " ".join(_said(op).split()))


def _override() -> Iterator[str]:
    yield '  A list of entries (they replace the script), or {"patches": [{"at": N, "entry": ENTRY}]}, where'
    yield "  N counts calls from 0. {{fromRequest:REGEX}} in a text is filled from the request. An ENTRY:"
    for kind, (needed, optional) in ENTRY_KEYS.items():
        keys = [*sorted(needed - {"kind"}), *(f"{key}?" for key in sorted(optional))]
        yield f'    {{"kind": "{kind}"{"".join(f", {key}" for key in keys)}}}'


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def _row(head: str, text: str) -> str:
    """A name and what is said of it, wrapped."""
    indent = " " * 8
    first = f"    {head}"
    lines = textwrap.wrap(text, WIDTH - len(indent), break_on_hyphens=False)
    if lines and len(first) + 3 + len(text) <= WIDTH:
        return f"{first}   {text}"
    return "\n".join([first, *(indent + line for line in lines)])

"""The words for suite.toml, input.json and a scenario's files: all explained, on the page and in the help."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from onetake import cli
from onetake.replay.override import ENTRY_KEYS, parse_override
from onetake.snapshot.drive.registry import DRIVERS
from onetake.snapshot.suites import ops as script
from onetake.snapshot.suites import settings, suite
from onetake.snapshot.suites.ops import script_from
from onetake.snapshot.suites.reference import reference, words
from onetake.snapshot.suites.settings import settings_from

PAGE = Path(__file__).parents[2] / "docs/suites.md"
STRUCTS = [
    *(settings.MintRule, settings.MaskRule, settings.SurfaceRules, settings.Normalize, settings.SuiteTable),
    *(settings.AgentTable, settings.GatewayTable, settings.ScenarioSettings, settings.Settings),
    *(script.Script, script.PermissionAnswer, script.WaitedFile),
]


def known_words() -> Iterator[str]:
    """Every key, op, field of an op, surface, driver and key of an override."""
    for struct in [*STRUCTS, *get_args(script.Step)]:
        yield from (field.encode_name for field in msgspec.structs.fields(struct))
    yield from (op.__struct_config__.tag for op in get_args(script.Step))
    yield from settings.SURFACES
    yield from DRIVERS
    for kind, (needed, optional) in ENTRY_KEYS.items():
        yield from (kind, *needed, *optional)


@pytest.mark.parametrize("where", ["page", "help"])
def test_every_word_is_explained(where: str) -> None:
    """A key that somebody adds is missed here until it is told of."""
    text = PAGE.read_text() if where == "page" else reference()
    found = set(re.findall(r"[A-Za-z_]+", text))
    assert set(known_words()) - found == set()


def test_every_field_has_a_docstring() -> None:
    """The help is made of them."""
    said = words(settings) | words(script)
    silent = [
        f"{struct.__name__}.{field.name}"
        for struct in STRUCTS
        for field in msgspec.structs.fields(struct)
        if not said[struct.__name__].get(field.name)
    ]
    assert silent == []
    assert all(said[op.__name__][""] for op in get_args(script.Step))


def test_the_examples_of_the_page_are_understood() -> None:
    """Each block is decoded by what decodes such a file."""
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [kind for kind, _ in blocks] == ["toml", "json", "json"]
    settings = settings_from(tomllib.loads(blocks[0][1]), PAGE)
    assert settings.normalize.mint[0].as_ == "ticket"
    assert len(script_from(json.loads(blocks[1][1]), "input.json").steps) == 4
    assert parse_override(blocks[2][1].encode(), "override").patches is not None
    rule = re.search(r"    \[\[normalize.mint\]\]\n.*?\n\n", PAGE.read_text(), re.DOTALL)
    assert rule is not None and tomllib.loads(rule[0])["normalize"]["mint"][0]["pattern"].startswith("ticket")


def test_the_help_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """And it is one command away."""
    assert cli.main(["help", "suite"]) == 0
    out = capsys.readouterr().out
    assert out == reference()
    assert max(map(len, out.split("\n"))) <= 110
    for file in (
        "input.json",
        "session.jsonl",
        "replay.override.json",
        "workspace/",
        "system-prompt.expected.md",
    ):
        assert f"\n  {file} " in out


def test_help_for_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`help COMMAND` is its `--help`; anything else is refused like a command."""
    assert cli.main(["help", "replay"]) == 0
    assert "usage: onetake replay" in capsys.readouterr().out
    assert cli.main(["help", "reply"]) == 2
    assert "did you mean 'replay'?" in capsys.readouterr().err


def test_each_mode_teaches_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Three texts; an argument is shown only where it does something, and the mode is the command."""
    texts = {}
    for name in ("replay", "record", "refresh"):
        assert cli.main([name, "--help"]) == 0
        texts[name] = " ".join(capsys.readouterr().out.split())
    assert ["--dry-run" in text for text in texts.values()] == [False, True, True]
    assert ["--jobs" in text for text in texts.values()] == [True, False, False]
    assert not any("--mode" in text for text in texts.values())
    assert "neither recorded nor" in texts["replay"] and "two replays" in texts["record"]
    assert "byte for byte" in texts["refresh"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"scenarios": {"one": {"pins_headr": True}}},
            r"`pins_headr`; did you mean `pins_header`\? \(known keys: recorded",
        ),
        ({"normalize": {"log": {"mask": [{"patern": "x", "with": ""}]}}}, "did you mean `pattern`"),
        ({"normalise": {}}, r"did you mean `normalize`\? \(known keys: agent, suite, gateway, normalize"),
        ({"agent": {"xyzzy": 1}}, "`xyzzy` - at `\\$.agent`; known keys: command, config"),
        ({"suite": {"driver": 3}}, "got `int` - at `\\$.suite.driver`$"),
    ],
)
def test_an_unknown_key_says_which_was_meant(table: dict[str, object], message: str) -> None:
    """And where all of them are explained; other faults need no such hint."""
    tables = {"agent": {"command": ["x"], "config": "y"}} | table
    with pytest.raises(suite.UsageError, match=message) as caught:
        settings_from(tables, Path("suite.toml"))
    assert ("`onetake help suite` explains them" in str(caught.value)) == (
        "unknown field" in str(caught.value)
    )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"op": "promt", "text": "x"}, r"did you mean `prompt`\? \(known ops: initialize"),
        ({"op": "prompt", "txt": "x"}, r"did you mean `text`\? \(known keys: text; `onetake help suite`"),
        ({"op": "promptAndCancel", "text": "x", "waitForFile": {"file": "y"}}, "known keys: path, timeoutMs"),
        ({"op": 3}, r"Expected `str`"),
        ({"op": "prompt"}, r"missing required field `text` - at `\$.steps\[0\]`$"),
    ],
)
def test_an_unknown_op_or_field_says_which_was_meant(step: dict[str, object], message: str) -> None:
    with pytest.raises(suite.UsageError, match=message):
        script_from({"steps": [step]}, "input.json")


def test_a_path_inside_a_suite_is_told_how_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a folder of a scenario, a file in it, and anything below."""
    (tmp_path / "snapshots/one/workspace").mkdir(parents=True)
    (tmp_path / "snapshots/one/input.json").write_text("{}")
    (tmp_path / "snapshots/suite.toml").write_text("[agent]\n")
    monkeypatch.chdir(tmp_path)
    for path in ("snapshots/one", "snapshots/one/input.json", "snapshots/one/workspace"):
        assert cli.main(["replay", path]) == 2
        assert f"{path}: lies inside a suite; name that, and choose the scenario: snapshots -k one" in (
            capsys.readouterr().err
        )

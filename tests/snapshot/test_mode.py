"""One word decides whether files are compared or rewritten; nothing else may."""

from __future__ import annotations

import pytest

from onetake.errors import UsageError
from onetake.snapshot.mode import mode_from, mode_of_command


@pytest.mark.parametrize("mode", ["replay", "record", "refresh"])
def test_the_three_words(mode: str) -> None:
    assert mode_from({"ONETAKE_SNAPSHOT": mode}) == mode
    assert mode_from({"ONETAKE_SNAPSHOT": "replay"}, option=mode) == mode
    assert mode_of_command(mode, None, {}) == mode
    assert mode_of_command(mode, None, {"ONETAKE_SNAPSHOT": mode}) == mode


def test_replay_is_the_default() -> None:
    assert mode_from({}) == "replay"


@pytest.mark.parametrize("word", ["", "Replay", "recrod", "update", "1"])
def test_any_other_word_is_refused(word: str) -> None:
    with pytest.raises(
        UsageError, match=f"ONETAKE_SNAPSHOT: '{word}' is not a mode; use one of: replay, record"
    ):
        mode_from({"ONETAKE_SNAPSHOT": word})
    with pytest.raises(UsageError, match=f"ONETAKE_SNAPSHOT: '{word}' is not a mode"):
        mode_of_command("replay", None, {"ONETAKE_SNAPSHOT": word})
    with pytest.raises(UsageError, match=f"--mode: '{word}' is not a mode"):
        mode_of_command("replay", word, {})


@pytest.mark.parametrize("mode", ["record", "refresh"])
def test_writing_is_refused_where_ci_is_set(mode: str) -> None:
    with pytest.raises(UsageError, match=f"{mode} is refused because CI is set: a job that can rewrite"):
        mode_of_command(mode, None, {"CI": "true"})
    assert mode_from({"CI": "", "ONETAKE_SNAPSHOT": mode}) == mode
    assert mode_from({"CI": "true"}) == "replay"


def test_command_and_variable_must_not_disagree() -> None:
    with pytest.raises(
        UsageError, match="`onetake replay` and ONETAKE_SNAPSHOT=record disagree: unset the var"
    ):
        mode_of_command("replay", None, {"ONETAKE_SNAPSHOT": "record"})
    with pytest.raises(UsageError, match="`onetake record` and ONETAKE_SNAPSHOT=replay disagree"):
        mode_of_command("record", None, {"ONETAKE_SNAPSHOT": "replay"})
    assert mode_of_command("replay", "refresh", {"ONETAKE_SNAPSHOT": "record"}) == "refresh"

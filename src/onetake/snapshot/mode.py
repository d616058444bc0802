"""The three modes, parsed in this one place: a typo must never turn a comparison into a rewrite."""

from __future__ import annotations

from collections.abc import Mapping

from onetake.errors import UsageError

VARIABLE = "ONETAKE_SNAPSHOT"
MODES = ("replay", "record", "refresh")


def parse_mode(text: str, *, origin: str) -> str:
    """One of the three words, or `UsageError`; `origin` says where the text came from."""
    if text not in MODES:
        raise UsageError(f"{origin}: {text!r} is not a mode; use one of: {', '.join(MODES)}")
    return text


def mode_from(environ: Mapping[str, str], *, option: str | None = None) -> str:
    """The mode of this run: the option when given, else the variable, else replay.

    Raises `UsageError` for any other word, and for record or refresh while `CI` is set.
    """
    if option is not None:
        mode = parse_mode(option, origin="--mode")
    else:
        mode = parse_mode(environ.get(VARIABLE, "replay"), origin=VARIABLE)
    refuse_in_ci(mode, environ)
    return mode


def mode_of_command(command: str, option: str | None, environ: Mapping[str, str]) -> str:
    """The mode of `onetake replay|record|refresh`: the command's own unless `--mode` names another.

    A variable that says something else than the command is refused: a forgotten `export` must not turn a
    comparison into a rewrite, nor the other way round.
    """
    if option is not None:
        return mode_from(environ, option=option)
    if VARIABLE in environ:
        told = parse_mode(environ[VARIABLE], origin=VARIABLE)
        if told != command:
            raise UsageError(
                f"`onetake {command}` and {VARIABLE}={told} disagree: "
                f"unset the variable, or run `onetake {told}`"
            )
    return mode_from(environ, option=command)


def refuse_in_ci(mode: str, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` when a writing mode is asked for on a CI machine."""
    if mode != "replay" and environ.get("CI"):
        raise UsageError(
            f"{mode} is refused because CI is set: a job that can rewrite its own expected files "
            f"cannot fail. Run `onetake {mode}` on your machine and commit the result."
        )

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


def mode_from(environ: Mapping[str, str], *, option: str | None = None, default: str = "replay") -> str:
    """The mode of this run: the option when given, else the variable, else the default.

    Raises `UsageError` for any other word, and for record or refresh while `CI` is set.
    """
    if option is not None:
        mode = parse_mode(option, origin="--mode")
    elif VARIABLE in environ:
        mode = parse_mode(environ[VARIABLE], origin=VARIABLE)
    else:
        mode = default
    refuse_in_ci(mode, environ)
    return mode


def refuse_in_ci(mode: str, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` when a writing mode is asked for on a CI machine."""
    if mode != "replay" and environ.get("CI"):
        raise UsageError(
            f"{mode} is refused because CI is set: a job that can rewrite its own expected files "
            f"cannot fail. Run `onetake {mode}` on your machine and commit the result."
        )

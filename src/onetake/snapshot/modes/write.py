"""Write the files of one scenario so that a crash leaves all of them or none.

    .pending/<name>          staged new contents, each fsynced
    .pending/manifest.json   written last, fsynced and renamed into place: **this is the commit**
    renames, deletions       the staged files move over the old ones
    .pending/ removed        done

A process that dies before the commit leaves the old bytes (the next command discards the stage); one that
dies after it leaves a mix only until the next command, which rolls forward. Renaming is idempotent, so a
crash in the middle of rolling forward is no different. A lock on the folder keeps a second command from
taking a stage that is being written for one that was left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from onetake.errors import UsageError

PENDING = ".pending"
MANIFEST = "manifest.json"


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    files: dict[str, str]
    """Name -> SHA-256 of its new contents."""
    delete: list[str]


def write_files(
    directory: Path, files: Mapping[str, bytes | None], *, check: Callable[[], None] = lambda: None
) -> list[str]:
    """Give each named file of `directory` its new bytes, or remove it for None: all of them or none.

    Files that already have these bytes are not touched. `check` is called when no other command can write
    here any more, and refuses by raising. Returns the names that changed, sorted. Names are plain file names;
    OSErrors pass through, and then the old bytes are in place or the next `recover` completes the write.
    """
    with locked(directory):
        _recover(directory)
        check()
        changed = {name: data for name, data in sorted(files.items()) if _current(directory / name) != data}
        if changed:
            try:
                _stage(directory, changed)
            except OSError:  # no room, say: what was staged is of no use, and in the way
                with contextlib.suppress(OSError):
                    _discard(directory)
                raise
            _roll_forward(directory)
    return list(changed)


def recover(directory: Path) -> str | None:
    """Finish or discard what a killed command left in `directory`.

    Returns "completed" (its commit was there), "discarded" (it was not), or None when nothing was left.
    Raises `UsageError` when the manifest is damaged, or what is there is no stage or cannot be changed.
    """
    pending = directory / PENDING
    if not pending.exists():
        return None
    try:
        with locked(directory):
            return _recover(directory)
    except OSError as error:
        raise UsageError(
            f"{pending}: holds what no command left there, or may not be changed ({error.strerror}: "
            f"{error.filename}); remove it and run the command again"
        ) from error


def _recover(directory: Path) -> str | None:
    pending = directory / PENDING
    if not pending.exists():
        return None
    if (pending / MANIFEST).exists():
        _roll_forward(directory)
        return "completed"
    _discard(directory)
    return "discarded"


def _discard(directory: Path) -> None:
    """Remove a stage that was not committed."""
    if not (directory / PENDING / MANIFEST).exists():
        _remove_tree(directory / PENDING)


def _current(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _stage(directory: Path, changed: Mapping[str, bytes | None]) -> None:
    pending = directory / PENDING
    pending.mkdir()
    files = {}
    for name, data in changed.items():
        if data is not None:
            _write_synced(pending / name, data)
            files[name] = hashlib.sha256(data).hexdigest()
    manifest = _Manifest(files, [name for name, data in changed.items() if data is None])
    draft = pending / f"{MANIFEST}.draft"
    _write_synced(draft, msgspec.json.encode(manifest))
    _sync_directory(pending)
    draft.rename(pending / MANIFEST)
    _sync_directory(pending)
    _sync_directory(directory)


def _roll_forward(directory: Path) -> None:
    pending = directory / PENDING
    manifest = _read_manifest(pending / MANIFEST)
    for name, digest in manifest.files.items():
        staged = pending / name
        data = _current(staged)
        if data is None:
            continue  # an earlier attempt moved it
        if hashlib.sha256(data).hexdigest() != digest:
            raise UsageError(
                f"{staged}: does not hold what {MANIFEST} committed; remove {pending} and run it again"
            )
        staged.rename(directory / name)
    for name in manifest.delete:
        (directory / name).unlink(missing_ok=True)
    _sync_directory(directory)
    _remove_tree(pending)


def _read_manifest(path: Path) -> _Manifest:
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=_Manifest)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path}: not a manifest ({error}); remove {path.parent} and run the command again"
        ) from error
    for name in [*manifest.files, *manifest.delete]:
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise UsageError(f"{path}: {name!r} is not a file name; remove {path.parent}")
    return manifest


def _remove_tree(pending: Path) -> None:
    # The manifest goes last: while it is there, what is left can only be rolled forward.
    for entry in sorted(pending.iterdir(), key=lambda path: path.name == MANIFEST):
        entry.unlink()
    pending.rmdir()


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other commands out of a directory while its files are read and written."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

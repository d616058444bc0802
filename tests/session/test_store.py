"""Logs on disk: published whole, appended durably, continued safely."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.session.appendfile import AppendFile
from onetake.session.frames import TornTail, read_image
from onetake.session.log import SessionLog
from onetake.session.store import Compression, SessionStore, project_name, read_file, read_live
from onetake.session.writer import BATCH_SECONDS, StoreError
from tests.session.make import assistant, call_block, counting_log, delta, header, started_turn

BOTH: list[Compression] = ["zstd", "none"]


@pytest.fixture(params=BOTH)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStore:
    """Return an empty store of either kind."""
    return SessionStore(tmp_path / "sessions", compression=request.param, project="my-project")


def events_at(store: SessionStore, path: Path) -> list[dict[str, Any]]:
    """Return the events of a stored log."""
    return store.load(path).log.events


def test_nothing_is_created_before_the_first_event(store: SessionStore) -> None:
    """A session without events leaves no trace."""
    log = counting_log()
    writer = store.open(log)
    asyncio.run(writer.close())
    assert not store.root.exists()
    assert store.logs() == [] and store.find("s-1") is None


def test_what_is_flushed_is_loaded(store: SessionStore) -> None:
    """Header and events, over several batches, deltas packed."""

    async def main() -> None:
        log = started_turn()
        writer = store.open(log)
        await writer.flush()
        for text in "abcd":
            log.append("assistant/chunk", delta(0, text)["data"])
        await writer.flush()
        assert writer.pending == 0
        await writer.flush()
        await writer.close()
        loaded = store.load(writer.path)
        assert (loaded.log.header, loaded.log.events, loaded.torn) == (log.header, log.events, None)
        assert read_live(writer.path) == (log.header, log.events)
        assert len(read_file(writer.path).records) == 4
        assert store.find("s-1") == writer.path and store.logs() == [writer.path]

    asyncio.run(main())


def test_the_place_is_readable(tmp_path: Path) -> None:
    """Root, project, session, file."""
    for compression, name in (("zstd", "session.jsonl.zstd"), ("none", "session.jsonl")):
        store = SessionStore(tmp_path / compression, compression=compression, project="p")  # type: ignore[arg-type]
        log = started_turn()
        writer = store.open(log)
        writer.flush_now()
        assert writer.path == tmp_path / compression / "p" / "s-1" / name
        assert writer.path.is_file()
        assert [path.name for path in writer.path.parent.iterdir()] == [name], "no temporary file stays"
        writer.abandon()


def test_frames_are_one_for_the_header_and_one_per_batch(tmp_path: Path) -> None:
    """So that every batch can be read on its own."""
    from onetake.session.frames import compress

    store = SessionStore(tmp_path, project="p")
    log = started_turn()
    writer = store.open(log)
    writer.flush_now()
    first = writer.path.read_bytes()
    log.append("x", None)
    writer.flush_now()
    second = writer.path.read_bytes()
    writer.abandon()
    head = compress(read_image(first, "log").text.split(b"\n")[0] + b"\n")
    assert first.startswith(head)
    assert second.startswith(first)
    assert read_image(second[len(first) :], "log").text == b'{"type":"x","seq":3,"time":4,"data":null}\n'


def test_a_log_is_never_overwritten(store: SessionStore) -> None:
    """Neither when it is known at opening nor when it appears afterwards."""
    first, second = started_turn(), started_turn()
    late = store.open(second)
    writer = store.open(first)
    writer.flush_now()
    before = writer.path.read_bytes()
    with pytest.raises(StoreError, match="exists already and is never overwritten"):
        late.flush_now()
    assert late.pending == 3
    with pytest.raises(UsageError, match=r"holds a log of session s-1 already; resume it"):
        store.open(started_turn())
    assert writer.path.read_bytes() == before
    assert [path.name for path in writer.path.parent.iterdir()] == [writer.path.name]
    writer.abandon()
    late.abandon()


def test_events_are_written_in_time_without_a_flush(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer on the running loop writes the batch; one timer serves all of its events."""
    delays: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        written = asyncio.Event()
        call_later = loop.call_later

        def soon(delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
            if delay != BATCH_SECONDS:
                return call_later(delay, callback, *args)
            delays.append(delay)
            return call_later(0, lambda: (callback(*args), written.set()))

        monkeypatch.setattr(loop, "call_later", soon)
        log = counting_log()
        writer = store.open(log)
        log.append("a", {})
        log.append("b", {})
        await asyncio.wait_for(written.wait(), 10)
        assert delays == [BATCH_SECONDS]
        assert [event["type"] for event in events_at(store, writer.path)] == ["a", "b"]
        await writer.close()
        log.append("c", {})
        assert len(events_at(store, writer.path)) == 2, "a closed writer hears nothing"
        assert delays == [BATCH_SECONDS]

    asyncio.run(main())


def test_an_abandoned_writer_writes_nothing(store: SessionStore) -> None:
    """Also not later, from its timer."""

    async def main() -> None:
        log = started_turn()
        writer = store.open(log)
        writer.abandon()
        await asyncio.sleep(0)
        assert writer._timer is None
        assert store.logs() == []

    asyncio.run(main())


class Disk:
    """A disk that is full from the moment it is told so, after `room` more bytes of a write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self.fail_sync = False
        self.fail_truncate = False
        self._real = {name: getattr(os, name) for name in ("pwrite", "fsync", "ftruncate")}
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "ftruncate", self.ftruncate)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        if self.room is not None:
            if self.room == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            data = data[: self.room]
            self.room -= len(data)
        return self._real["pwrite"](fd, data, offset)

    def fsync(self, fd: int) -> None:
        if self.fail_sync:
            raise OSError(errno.EIO, "Input/output error")
        self._real["fsync"](fd)

    def ftruncate(self, fd: int, length: int) -> None:
        if self.fail_truncate:
            raise OSError(errno.EIO, "Input/output error")
        self._real["ftruncate"](fd, length)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return the disk on which this test writes."""
    return Disk(monkeypatch)


def test_a_failed_write_is_rolled_back_and_tried_again(store: SessionStore, disk: Disk) -> None:
    """The file is as it was; the batch waits; the error is raised and kept until a success."""
    log = started_turn()
    writer = store.open(log)
    writer.flush_now()
    before = writer.path.read_bytes()
    log.append("x", {"long": "text" * 20})
    disk.room = 7
    with pytest.raises(StoreError, match=r"cannot be written: No space left on device\. 1 events wait"):
        writer.flush_now()
    assert writer.path.read_bytes() == before
    assert writer.error is not None and writer.pending == 1
    with pytest.raises(StoreError):
        asyncio.run(writer.close())
    disk.room = None
    log.append("y", {})
    asyncio.run(writer.close())
    assert writer.error is None
    assert events_at(store, writer.path) == log.events


def test_a_failed_sync_is_no_success(store: SessionStore, disk: Disk) -> None:
    """What is not known to be on disk is written again."""
    log = started_turn()
    writer = store.open(log)
    writer.flush_now()
    log.append("x", {})
    disk.fail_sync = True
    with pytest.raises(StoreError, match="Input/output error"):
        writer.flush_now()
    disk.fail_sync = False
    assert writer.pending == 1
    asyncio.run(writer.close())
    assert events_at(store, writer.path) == log.events


def test_a_failed_roll_back_is_made_up_for_first(store: SessionStore, disk: Disk) -> None:
    """Remains of a long batch must not survive behind a shorter one; till then they are a torn tail."""
    log = started_turn()
    writer = store.open(log)
    writer.flush_now()
    durable = writer.path.stat().st_size
    log.append("x", {"long": os.urandom(300).hex()})
    disk.room, disk.fail_truncate = 50, True
    for _ in range(2):
        with pytest.raises(StoreError):
            writer.flush_now()
        disk.room = 0
    loaded = store.load(writer.path)
    assert loaded.torn == TornTail(durable, 50) and loaded.log.events == log.events[:3]
    disk.room, disk.fail_truncate = None, False
    asyncio.run(writer.close())
    assert events_at(store, writer.path) == log.events


def test_remains_of_a_failed_write_never_survive_a_shorter_one(tmp_path: Path, disk: Disk) -> None:
    """The file holds what was appended successfully, and nothing else."""
    file = AppendFile.publish(tmp_path / "file", b"head\n")
    disk.room, disk.fail_truncate = 8, True
    with pytest.raises(OSError, match="No space"):
        file.append(b"a long line\n")
    disk.room = None
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"b\n")
    disk.fail_truncate = False
    file.append(b"c\n")
    file.close()
    assert file.path.read_bytes() == b"head\nc\n"


def test_a_failed_publication_leaves_nothing(store: SessionStore, disk: Disk) -> None:
    """Neither a temporary file nor a half log; the next try publishes."""
    log = started_turn()
    writer = store.open(log)
    disk.room = 10
    with pytest.raises(StoreError, match="3 events wait"):
        writer.flush_now()
    assert store.logs() == [] and not list(writer.path.parent.iterdir())
    disk.room = None
    asyncio.run(writer.close())
    assert events_at(store, writer.path) == log.events


def test_a_timed_failure_is_raised_by_the_next_flush(store: SessionStore, disk: Disk) -> None:
    """The timer itself stays quiet and tries again; nothing is lost."""

    async def main() -> None:
        log = started_turn()
        writer = store.open(log)
        disk.room = 0
        writer._flush_in_time()
        assert writer.error is not None
        assert writer._timer is not None, "it must be tried again without being asked"
        with pytest.raises(StoreError):
            await writer.flush()
        disk.room = None
        writer._flush_in_time()
        assert writer.error is None and writer.pending == 0
        await writer.close()

    asyncio.run(main())


def test_what_json_cannot_say_is_reported(store: SessionStore) -> None:
    """The error says so instead of an internal one."""
    log = counting_log()
    log.append("x", {"file": object()})
    writer = store.open(log)
    with pytest.raises(StoreError, match="holds what JSON cannot say: a value of type object"):
        writer.flush_now()
    writer.abandon()


def stored(store: SessionStore, log: SessionLog) -> Path:
    """Write `log` and return its path."""
    writer = store.open(log)
    asyncio.run(writer.close())
    return writer.path


def test_a_resumed_log_goes_on(store: SessionStore) -> None:
    """New events follow the old ones in the same file, numbered on."""
    log = started_turn()
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    path = stored(store, log)
    resumed = store.resume(path)
    assert (resumed.torn, resumed.torn_copy, resumed.repaired) == (None, None, [])
    assert resumed.writer.pending == 0
    resumed.log.append("turn/start", {"turn": 2})
    asyncio.run(resumed.writer.close())
    assert [event["seq"] for event in events_at(store, path)] == [0, 1, 2, 3, 4]
    assert events_at(store, path) == resumed.log.events


def test_resuming_cuts_a_torn_tail_and_closes_the_turn(store: SessionStore) -> None:
    """Loading reports the tail and changes nothing; resuming cuts it, keeps it and repairs the turn."""
    log = started_turn()
    log.append("assistant/message", assistant(call_block("a")), surface_op="append")
    path = stored(store, log)
    whole = path.read_bytes()
    tail = whole[:30] if store.compression == "zstd" else b'{"type":"tool/ca'
    path.write_bytes(whole + tail)
    loaded = store.load(path)
    assert loaded.torn == TornTail(len(whole), len(tail))
    assert read_live(path)[1] == loaded.log.events == log.events
    assert path.read_bytes() == whole + tail
    resumed = store.resume(path)
    assert resumed.torn == loaded.torn
    assert resumed.torn_copy is not None and resumed.torn_copy.read_bytes() == tail
    assert path.read_bytes() == whole
    assert [event["type"] for event in resumed.repaired] == ["tool/result", "step/end", "turn/end"]
    asyncio.run(resumed.writer.close())
    assert events_at(store, path) == [*log.events, *resumed.repaired]


def test_two_writers_exclude_each_other(store: SessionStore) -> None:
    """While a log is written, it cannot be resumed."""
    log = started_turn()
    writer = store.open(log)
    writer.flush_now()
    with pytest.raises(UsageError, match="is being written by another process"):
        store.resume(writer.path)
    asyncio.run(writer.close())
    asyncio.run(store.resume(writer.path).writer.close())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda log: log.append("x/unknown", {}), r"it holds events of the unknown type x/unknown"),
        (
            lambda log: log.append("user/message", 1, surface_op="append"),
            "event 3 .* cannot be part of the history",
        ),
    ],
)
def test_what_cannot_be_resumed_is_left_alone(store: SessionStore, spoil: Any, message: str) -> None:
    """The refusal says why; the file keeps its bytes and its lock is given up."""
    log = started_turn()
    spoil(log)
    path = stored(store, log)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(UsageError, match=message):
            store.resume(path)
    assert path.read_bytes() == before


def test_damage_is_refused_by_every_strict_reader(store: SessionStore) -> None:
    """Loading and resuming name the place; live reading gives what is before."""
    log = started_turn()
    writer = store.open(log)
    writer.flush_now()
    at = writer.path.stat().st_size
    log.append("x", {"text": "y" * 50})
    asyncio.run(writer.close())
    raw = bytearray(writer.path.read_bytes())
    raw[at + 1 : at + 20] = b"\n" * 19
    writer.path.write_bytes(raw)
    for read in (store.load, store.resume):
        with pytest.raises(UsageError, match=r"session\.jsonl.*(frame 2|line 5)"):
            read(writer.path)
    assert read_live(writer.path)[1] == log.events[:3]


def test_missing_files_and_bad_names_are_usage_errors(store: SessionStore, tmp_path: Path) -> None:
    """Each says which file or name."""
    for read in (store.load, store.resume, read_live):
        with pytest.raises(UsageError, match=r"nowhere.*: cannot be .*No such file"):
            read(tmp_path / "nowhere")
    for name in ("", ".", "..", "a/b", "a\0b"):
        with pytest.raises(UsageError, match="session id"):
            store.open(SessionLog(header(name)))
        with pytest.raises(UsageError, match="project directory"):
            SessionStore(tmp_path, project=name)
    with pytest.raises(UsageError, match="compression is 'gzip'"):
        SessionStore(tmp_path, compression="gzip", project="p")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/me/my project", "home-me-my-project"),
        ("/", "root"),
        ("/a/../b", "a-..-b"),
        ("/w/\N{GRINNING FACE}/x", "w-x"),
        ("/" + "d" * 120 + "/end", "d" * 96 + "-end"),
    ],
)
def test_a_project_is_named_after_its_folder(cwd: str, name: str) -> None:
    """Readable, short, and fit for a directory."""
    assert project_name(cwd) == name


def test_a_store_that_does_not_wait_for_the_disk_syncs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes the same bytes in the same order; a store that waits syncs each of them."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)

    async def main(name: str, *, wait: bool) -> bytes:
        store = SessionStore(tmp_path / name, compression="none", project="p", synced=wait)
        log = started_turn()
        writer = store.open(log)
        await writer.flush()
        log.append("x", {"n": 1})
        await writer.close()
        return store.logs()[0].read_bytes()

    waited = asyncio.run(main("waits", wait=True))
    assert len(synced) >= 2
    synced.clear()
    assert asyncio.run(main("hurries", wait=False)) == waited
    assert synced == []

"""Session logs as bytes: read one, write one, and rewrite one without touching what need not change.

Lines end at `\\n` and nowhere else (U+2028, U+0085 and `\\r` are ordinary text). Line 1 is the header, every
further line is one record: an event or a packed row. Reading keeps the bytes of each record next to its
value, so that `rewrite` can pack, unpack and project a log that another program wrote, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from onetake import jsontext
from onetake.errors import UsageError
from onetake.session import frames, packing, splice
from onetake.session.events import ASSISTANT_CHUNK, FORMAT_VERSION, SESSION, Event, Header
from onetake.session.packing import PackingError, Record


class StoredRecord(msgspec.Struct):
    """One line of a log behind the header."""

    raw: bytes
    """The line, without its newline."""
    value: Record
    """The same, decoded: an event or a packed row, possibly without an envelope."""
    seq: int
    """The sequence number of its (first) event."""
    count: int
    """How many events it stores."""

    @property
    def is_row(self) -> bool:
        """Whether it is a packed row."""
        return self.value["type"] in packing.ROW_TYPES


class LogFile(msgspec.Struct):
    """A log as it was read."""

    name: str
    """What messages call it: a path."""
    header: Header
    header_raw: bytes
    """The first line, without its newline."""
    lines: list[bytes]
    """All further lines, without their newlines."""
    values: list[Record]
    """The same, decoded."""
    torn: frames.TornTail | None = None
    """The unfinished write at its end; only `read_log(..., live=True)` accepts one."""
    flaw: str | None = None
    """Why reading stopped before the end; only `read_log(..., live=True)` stops early."""
    _records: list[StoredRecord] | None = None
    _events: list[Event] | None = None

    @property
    def records(self) -> list[StoredRecord]:
        """The lines behind the header with what is known about each; made when first asked for."""
        if self._records is None:
            self._records, seq = [], 0
            for line, value in zip(self.lines, self.values, strict=True):
                record = StoredRecord(line, value, seq, packing.event_count(value))
                self._records.append(record)
                seq += record.count
        return self._records

    @property
    def events(self) -> list[Event]:
        """All events, rows unpacked and envelopes filled in; made when first asked for."""
        if self._events is None:
            self._events = packing.expand(self.values)
        return self._events

    @property
    def id(self) -> str:
        """The id of the session."""
        session_id: str = self.header["id"]
        return session_id


def read_log(raw: bytes, name: str, *, live: bool = False) -> LogFile:
    """Read a log, compressed or not, from the bytes of the file `name`.

    Raises `UsageError` with file, line and remedy. With `live`, a torn tail or damage behind a readable
    header is no error: what is before it is returned, and what was found is in `torn` and `flaw`.
    """
    image = frames.read_image(raw, name, lenient=live)
    if image.torn is not None and not live:
        raise UsageError(
            f"{name}: ends with {image.torn}. A fixture must end with a newline; a live log is complete "
            f"only after its session has ended (`onetake log show {name}` reads it in any state)."
        )
    return parse_log(image, name, live=live)


def parse_log(image: frames.Image, name: str, *, live: bool = False) -> LogFile:
    """Read the whole lines of `image`; errors and `live` as with `read_log`."""
    lines = image.text.split(b"\n")
    lines.pop()  # behind the last newline
    if not lines:
        what = image.flaw or (f"holds only {image.torn}" if image.torn else "is empty")
        raise UsageError(f"{name}: {what}. A session log begins with a line like {_HEADER_EXAMPLE}")
    header_raw = lines.pop(0)
    header = _read_header(header_raw, name)
    values = jsontext.loads_lines(image.text, lines)
    found, fault = _check_records(lines, values if values is not None else map(jsontext.loads, lines))
    log = LogFile(name, header, header_raw, lines[: len(found)], found, torn=image.torn, flaw=image.flaw)
    if fault is not None:
        place = f"line {len(found) + 2}"
        if not live:
            remedy = "Restore the line: one JSON object, no blank lines."
            raise UsageError(f"{name}, {place}: {fault}. {remedy}")
        log.flaw = f"{place}: {fault}"
    return log


def encode_log(
    header: Header, events: Sequence[Event], *, packed: bool = True, project: bool = False
) -> bytes:
    """Return the log as bytes: `packed` into maximal runs or not; `project` leaves the envelopes out."""
    return jsontext.dumps_lines([header]) + encode_records(events, packed=packed, project=project)


def encode_records(events: Sequence[Event], *, packed: bool = True, project: bool = False) -> bytes:
    """Return the lines of `events` without a header (one batch of a store)."""
    records: Sequence[Record] = packing.pack(events) if packed else events
    return jsontext.dumps_lines([_projected(record) for record in records] if project else records)


def rewrite(log: LogFile, *, packed: bool, project: bool = False) -> bytes:
    """Return `log` packed into maximal runs or unpacked, with envelopes or `project`ed.

    Records that are neither packed nor unpacked keep their bytes but for the envelope.
    """
    lines = [log.header_raw]
    if packed:
        lines += _packed_lines(log, project)
    else:
        for record in log.records:
            lines += _verbatim_lines(record, project)
    return b"\n".join(lines) + b"\n"


_HEADER_EXAMPLE = '{"type":"session","version":0,"id":"...","createdAt":0,"delegationDepth":0}'
_ENVELOPE = ("seq", "time", "seq0", "time0")
_EVENT_ORDERS = (
    ("type", "data"),
    ("type", "seq", "data"),
    ("type", "time", "data"),
    ("type", "seq", "time", "data"),
)


def _read_header(line: bytes, name: str) -> Header:
    try:
        header = jsontext.loads(line)
    except jsontext.JsonError as error:
        raise UsageError(
            f"{name}, line 1: {error}. A session log begins with a line like {_HEADER_EXAMPLE}"
        ) from None
    if not isinstance(header, dict) or header.get("type") != SESSION or not isinstance(header.get("id"), str):
        raise UsageError(f"{name}, line 1: is not a session header. It should look like {_HEADER_EXAMPLE}")
    if header.get("version", FORMAT_VERSION) != FORMAT_VERSION:
        raise UsageError(
            f"{name}, line 1: has format version {header['version']!r}; this program reads version "
            f"{FORMAT_VERSION}. Use the program that wrote it."
        )
    return header


def _check_records(lines: list[bytes], values: Iterable[Any]) -> tuple[list[Record], Exception | None]:
    """Return the records up to the first that breaks a rule, and what is wrong with that one."""
    checked: list[Record] = []
    seq = 0
    try:
        for line, value in zip(lines, values, strict=True):
            kind = value.get("type") if type(value) is dict else None
            if kind in packing.ROW_TYPES:
                found = value.get("seq0", seq)
                jsontext.require_unique_keys(line, value)
                count = packing.check_row(value, seq)
                if jsontext.dumps(value) != line:  # its events would be written as another row
                    raise PackingError(
                        f"{kind}: is spelled with white space or needless escapes; "
                        "`onetake migrate` writes it as it should be"
                    )
            elif type(kind) is str:
                found = value.get("seq", seq)
                count = 1
            else:
                raise PackingError("is not an object with a type")
            if found != seq or type(found) is not int:
                raise PackingError(
                    f"has seq {found!r} where {seq} comes next: events are missing or out of order"
                )
            seq += count
            checked.append(value)
    except (jsontext.JsonError, PackingError) as error:
        return checked, error
    return checked, None


def _projected(record: Record) -> Record:
    return {key: value for key, value in record.items() if key not in _ENVELOPE}


def _verbatim_lines(record: StoredRecord, project: bool) -> Iterator[bytes]:
    if record.is_row:
        for event in packing.members(record.value, record.seq):
            yield jsontext.dumps(_projected(event) if project else event)
    elif project:
        yield splice.without_envelope(record.raw, record.value)
    else:
        yield splice.with_envelope(record.raw, record.value, record.seq)


def _packed_lines(log: LogFile, project: bool) -> Iterator[bytes]:
    events = log.events
    stored = {record.seq: record for record in log.records if not record.is_row}
    odd = {seq for seq, record in stored.items() if not _is_plain(record)}
    for start, stop in packing.spans(events, odd):
        if stop - start == 1 and start in stored:
            yield from _verbatim_lines(stored[start], project)
            continue
        record = packing.row_of(events[start:stop]) if stop - start > 1 else events[start]
        yield jsontext.dumps(_projected(record) if project else record)


def _is_plain(record: StoredRecord) -> bool:
    """Tell whether a delta would come back from a row as it is spelled."""
    is_chunk = record.value["type"] == ASSISTANT_CHUNK
    return not is_chunk or (
        tuple(record.value) in _EVENT_ORDERS and jsontext.dumps(record.value) == record.raw
    )

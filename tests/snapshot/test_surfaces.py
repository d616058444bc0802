"""Rendering of each surface, from synthetic harvests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from onetake import jsontext
from onetake.errors import UsageError
from onetake.fixture.normalize import Rules
from onetake.session.jsonl import read_log
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.render.pins import (
    HeaderNamer,
    Pin,
    Pins,
    load_pins,
    read_sidecar,
    sidecar_of,
    with_full_names,
    write_order,
    write_sidecar,
)
from onetake.snapshot.render.render import HEADER_ONLY, render
from onetake.snapshot.render.requests import Logged, render_requests
from onetake.snapshot.render.transcript import render_transcript
from onetake.snapshot.render.workspace import MAX_TEXT, render_workspace
from onetake.snapshot.suites.suite import Suite, load_suite

SESSION = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"


def same(value: Any) -> Any:
    """No tokens."""
    return value


def frames(*values: Any) -> list[bytes]:
    """Raw lines."""
    return [jsontext.dumps(value) for value in values]


def lines(data: bytes) -> list[Any]:
    """The JSON lines of a rendered file."""
    return [json.loads(line) for line in data.split(b"\n") if line]


# stdout -----------------------------------------------------------------------------------------------------


def test_ids_are_renumbered_by_first_appearance_in_one_map() -> None:
    """Numbers and strings are different ids; null and notifications have none."""
    sent = frames(
        {"jsonrpc": "2.0", "id": 70, "result": {}},
        {"jsonrpc": "2.0", "id": "70", "method": "session/request_permission"},
        {"jsonrpc": "2.0", "id": 71, "result": {}},
        {"jsonrpc": "2.0", "id": 70, "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {}},
        {"jsonrpc": "2.0", "method": "session/update"},
    )
    rendered = render_transcript(sent, same, Rules())
    assert [frame.get("id", "none") for frame in lines(rendered.data)] == [1, 2, 3, 1, None, "none"]
    assert rendered.stray == []


@pytest.mark.parametrize(
    "stray",
    [b"debug", b"", b"[1]", b"42", b'"text"', b"{}", b'{"id":1}', b'{"jsonrpc":"1.0","id":1}', b"\xff",
     b'{"jsonrpc":"2.0","id":{}}', b'{"jsonrpc":"2.0","id":1} x'],
)  # fmt: skip
def test_what_is_no_frame_is_stray(stray: bytes) -> None:
    """Also when it is JSON."""
    rendered = render_transcript([*frames({"jsonrpc": "2.0", "id": 1, "result": {}}), stray], same, Rules())
    assert len(rendered.stray) == 1 and rendered.stray[0].startswith("stdout line 2 is no JSON-RPC frame")
    assert len(lines(rendered.data)) == 1


def test_rules_act_on_frames() -> None:
    """Paths are dropped, texts masked."""
    rules = Rules(["result.agentInfo.version", "params.*.at"], [("pid [0-9]+", "pid N")])
    sent = frames(
        {"jsonrpc": "2.0", "id": 1, "result": {"agentInfo": {"name": "a", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "m", "params": {"x": {"at": 5, "t": "pid 77"}}},
    )
    assert lines(render_transcript(sent, same, rules).data) == [
        {"jsonrpc": "2.0", "id": 1, "result": {"agentInfo": {"name": "a"}}},
        {"jsonrpc": "2.0", "method": "m", "params": {"x": {"t": "pid N"}}},
    ]


def chunk(text: str, session: str = "s", kind: str = "agent_message_chunk") -> dict[str, Any]:
    """A streamed piece."""
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}}


def test_joining_merges_adjacent_pieces_of_one_stream() -> None:
    """Another session, another kind and anything else in between end the stream."""
    sent = frames(
        chunk("a"), chunk("b"), chunk("c", "t"), chunk("d", "t", "agent_thought_chunk"), chunk("e"),
        {"jsonrpc": "2.0", "id": 1, "result": {}}, chunk("f"), chunk("g"),
    )  # fmt: skip
    joined = lines(render_transcript(sent, same, Rules(), joined=True).data)
    texts = [frame["params"]["update"]["content"]["text"] for frame in joined if "params" in frame]
    assert texts == ["ab", "c", "d", "e", "fg"]
    assert len(lines(render_transcript(sent, same, Rules()).data)) == 8


# requests ---------------------------------------------------------------------------------------------------


def message(number: int, text: str, role: str = "user", **source: Any) -> dict[str, Any]:
    """A message with an id."""
    content = [{"type": "text", "text": text}]
    return {"role": role, "content": content, "source": {"kind": role, **source}, "id": f"id-{number}"}


def request(session: str, call: int, messages: list[Any], **more: Any) -> dict[str, Any]:
    """A captured call."""
    return {
        "session": session, "call": call, "purpose": "main", "config": {"model": "m"},
        "system": "S", "tools": [], "messages": messages, **more,
    }  # fmt: skip


def tokens(value: Any) -> Any:
    """A tokenizer that knows three ids."""
    text = json.dumps(value)
    for number in (1, 2, 3):
        text = text.replace(f'"id-{number}"', f'"{{{{msg:1.{number}}}}}"')
    return json.loads(text)


def rendered_requests(requests: list[Any], logged: list[Any], **options: Any) -> list[Any]:
    """Render with one bound session whose log holds some messages."""
    events = [{"type": "user/message", "data": item} for item in logged]
    bindings = options.pop("bindings", {"s": 0})
    return lines(
        render_requests(
            requests,
            bindings,
            {0: Logged(events)},
            tokens,
            lambda kind, value: "{{system:pin}}" if value == "S" else None,
            options.pop("rules", Rules()),
        )
    )


def test_a_message_that_the_log_holds_is_named() -> None:
    """Role, content and replayState decide; the rest of the source does not."""
    log = [message(1, "a"), message(2, "b", "assistant", replayState={"response": 1})]
    sent = [message(1, "a"), message(2, "b", "assistant", replayState={"response": 1}, extra=1)]
    (line,) = rendered_requests([request("s", 1, sent)], log)
    assert line["messages"] == ["{{msg:1.1}}", "{{msg:1.2}}"]
    assert (line["system"], line["tools"], line["kept"]) == ("{{system:pin}}", [], 0)


@pytest.mark.parametrize(
    "sent",
    [
        message(1, "A"),
        message(1, "a", "assistant"),
        message(1, "a", replayState={"response": 1}),
        message(4, "a"),
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {**message(1, "a"), "content": [{"type": "text", "text": "a", "extra": True}]},
    ],
)
def test_a_message_that_differs_from_the_log_is_spelt_out(sent: dict[str, Any]) -> None:
    """Whatever differs: nothing may hide behind a token."""
    (line,) = rendered_requests([request("s", 1, [sent])], [message(1, "a")])
    assert isinstance(line["messages"][0], dict)


def test_an_id_without_a_token_names_nothing() -> None:
    """Then the message speaks for itself."""
    (line,) = rendered_requests([request("s", 1, [message(9, "a")])], [message(9, "a")])
    assert line["messages"] == [message(9, "a")]


def test_kept_counts_the_common_prefix_by_session_and_purpose() -> None:
    """A changed early message is shown again, with all that follow."""
    log = [message(1, "a"), message(2, "b"), message(3, "c")]
    calls = [
        request("s", 1, log[:1]),
        request("s", 2, log[:1], purpose="title"),
        request("s", 3, log[:2]),
        request("s", 4, [message(1, "changed"), *log[1:]]),
        request("s", 5, []),
    ]
    found = rendered_requests(calls, log)
    assert [line["kept"] for line in found] == [0, 0, 1, 0, 0]
    assert found[2]["messages"] == ["{{msg:1.2}}"]
    assert [isinstance(item, dict) for item in found[3]["messages"]] == [True, False, False]


def test_lines_are_ordered_by_session_and_call() -> None:
    """However the calls of concurrent sessions interleave; a session that nothing binds comes last."""
    calls = [
        request("x", 1, []),
        request("b", 1, []),
        request("a", 2, []),
        request("a", 1, []),
        request("b", 2, []),
    ]
    found = rendered_requests(calls, [], bindings={"a": 0, "b": 1})
    assert [(line["session"], line["call"]) for line in found] == [(0, 1), (0, 2), (1, 1), (1, 2), (None, 1)]


def test_rules_act_on_live_values_and_leave_names_alone() -> None:
    """A mask that would match a token does not see it; a dropped field is gone."""
    rules = Rules(["config.seed"], [("msg|a", "X")])
    call = request("s", 1, [message(1, "a"), message(2, "a")], config={"seed": 5, "model": "m"}, tools=None)
    (line,) = rendered_requests([call], [message(1, "a")], rules=rules)
    assert line["messages"][0] == "{{msg:1.1}}" and line["messages"][1]["content"][0]["text"] == "X"
    assert line["config"] == {"model": "m"} and line["tools"] is None
    (line,) = rendered_requests([call], [], rules=Rules(["system", "messages"]))
    assert "system" not in line and "messages" not in line


# workspace --------------------------------------------------------------------------------------------------


def test_the_workspace_by_path_mode_and_content(tmp_path: Path) -> None:
    """Text by line, other content by digest, links by target; the root's `.git` is only listed."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b/run.sh").write_text("echo 1\necho 2\n")
    (tmp_path / "b/run.sh").chmod(0o755)
    (tmp_path / "a.bin").write_bytes(b"\0\1")
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "big").write_bytes(b"x" * (MAX_TEXT + 1))
    (tmp_path / "link").symlink_to("b/run.sh")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index").write_text("x")
    (tmp_path / "b/.git").mkdir(mode=0o700)
    (tmp_path / "b/.git/index").write_text("x")
    found = {entry["path"]: entry for entry in lines(render_workspace(tmp_path, same, Rules()))}
    inside = ["b/", "b/.git/", "b/.git/index", "b/run.sh"]
    assert list(found) == ["./", ".git/", "a.bin", *inside, "big", "latin", "link", "pipe"]
    assert found["b/run.sh"] == {"path": "b/run.sh", "mode": "0755", "lines": ["echo 1", "echo 2", ""]}
    assert found[".git/"]["kind"] == "not compared" and found["b/.git/"]["mode"] == "0700"
    assert found["pipe"]["kind"] == "special"
    assert (
        found["a.bin"]["bytes"] == 2 and len(found["latin"]["sha256"]) == 64 and "lines" not in found["big"]
    )
    assert found["link"] == {"path": "link", "link": "b/run.sh"}


def test_each_bit_of_a_mode_counts(tmp_path: Path) -> None:
    """Of files and of folders: a key that others can read is not the file that it was."""
    (tmp_path / "key").write_text("k")
    (tmp_path / "home").mkdir()

    def modes() -> dict[str, str]:
        return {e["path"]: e["mode"] for e in lines(render_workspace(tmp_path, same, Rules()))}

    for bits in (0o600, 0o644, 0o4755, 0o1777):
        (tmp_path / "key").chmod(bits)
        (tmp_path / "home").chmod(bits | 0o700)
        found = modes()
        assert found["key"] == f"{bits:04o}" and found["home/"] == f"{bits | 0o700:04o}"


def test_a_workspace_that_is_gone_is_not_an_empty_one(tmp_path: Path) -> None:
    """An agent that removes its own folder leaves a trace; so does one that puts a link there."""
    (tmp_path / "empty").mkdir(mode=0o755)
    assert lines(render_workspace(tmp_path / "empty", same, Rules())) == [{"path": "./", "mode": "0755"}]
    missing = [{"path": "./", "kind": "missing"}]
    assert lines(render_workspace(tmp_path / "nothing", same, Rules())) == missing
    (tmp_path / "swapped").symlink_to("empty")
    assert lines(render_workspace(tmp_path / "swapped", same, Rules())) == [{"path": "./", "link": "empty"}]


def test_what_cannot_be_read_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent may take its own rights away; that is no failure of the runner."""
    (tmp_path / "shut").mkdir()
    (tmp_path / "secret").write_text("x")
    listdir, read_bytes = os.listdir, Path.read_bytes

    def refuse(path: Path) -> Any:
        if path.name in ("shut", "secret"):
            raise PermissionError
        return listdir(path) if path.is_dir() else read_bytes(path)

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    found = {entry["path"]: entry.get("kind") for entry in lines(render_workspace(tmp_path, same, Rules()))}
    assert found == {"./": None, "secret": "unreadable", "shut/": "unreadable"}


# pins -------------------------------------------------------------------------------------------------------


def make_suite(folder: Path, scenarios: dict[str, str], extra: str = "") -> Suite:
    """A suite of empty scenarios with these settings."""
    tables = "\n".join(f"[scenarios.'{name}']\n{settings}" for name, settings in scenarios.items())
    for name in scenarios:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "input.json").write_text('{"steps": [{"op": "initialize"}]}')
    (folder / "suite.toml").write_text(f'{extra}\n[agent]\ncommand = ["x"]\nconfig = "x"\n{tables}\n')
    return load_suite(folder)


@pytest.mark.parametrize("text", ["", "one line", "two\nlines\n", "\n\n", "\u2028 and \r and é"])
def test_a_prompt_survives_its_sidecar(text: str) -> None:
    """Whether it ends with a newline or not."""
    assert read_sidecar("system", write_sidecar("system", text), "f") == text


def test_sidecars_are_known_by_their_names() -> None:
    """And nothing else is one."""
    assert sidecar_of("system-prompt.expected.md") == ("system", 0)
    assert sidecar_of("tool-schemas.12.expected.json") == ("tools", 12)
    for name in (
        "system-prompt.0.expected.md",
        "system-prompt.expected.json",
        "tool-schemas.expected.md",
        "x.md",
    ):
        assert sidecar_of(name) is None


def test_a_pin_numbers_its_texts_and_takes_over_those_of_earlier_pins(tmp_path: Path) -> None:
    """Each distinct text once in the suite."""
    suite = make_suite(tmp_path, {"a": "pins_header = true", "b": "pins_header = true", "c": ""})
    pins = Pins([Pin("a", 0, "system", "A"), Pin("b", 0, "system", "B")], ["a", "b"])
    namer = HeaderNamer(pins, suite.scenarios["b"], {})
    assert [namer.header(0, n, "system", text) for n, text in enumerate(["X", "A", "Y", "X"])] == [
        "{{system:b}}",
        "{{system:a}}",
        "{{system:b.1}}",
        "{{system:b}}",
    ]
    assert namer.sidecars() == {"system-prompt.expected.md": b"X\n", "system-prompt.1.expected.md": b"Y\n"}
    assert namer.names == {"a", "b", "b.1"} and namer.unpinned == []
    earlier = HeaderNamer(pins, suite.scenarios["a"], {})
    assert earlier.header(0, 0, "system", "B") == "{{system:a}}", (
        "the first pin of the suite holds a shared text"
    )


def test_a_scenario_names_the_pin_that_holds_its_text(tmp_path: Path) -> None:
    """A text that no pin holds stands under the committed name, and is reported once."""
    suite = make_suite(tmp_path, {"a": "pins_header = true", "b": "pins_header = true", "c": ""})
    pins = Pins(
        [Pin("a", 0, "system", "A"), Pin("b", 0, "system", "B"), Pin("b", 0, "tools", [1])], ["a", "b"]
    )
    header = {"system": "{{system:b}}", "tools": "{{tools:b}}"}
    line = jsontext.dumps({"type": "request/header", "data": {"header": header}})
    committed = {"session.jsonl": b"{}\n" + line + b'\nbroken "request/header"\n'}
    namer = HeaderNamer(pins, suite.scenarios["c"], committed)
    assert namer.header(0, 0, "system", "A") == "{{system:a}}"
    assert namer.header(0, 1, "system", "new") == "{{system:b}}"
    assert namer.header(0, 2, "system", "new") == "{{system:b}}"
    assert namer.header(0, 0, "tools", [1]) == "{{tools:b}}" and namer.token("tools", [1]) == "{{tools:b}}"
    assert namer.header(0, 0, "tools", [True]) == "{{tools:b}}", "true is not 1, so this is another text"
    assert [(u.kind, u.value, u.committed.name if u.committed else "") for u in namer.unpinned] == [
        ("system", "new", "b"),
        ("tools", [True], "b"),
    ]
    assert namer.token("system", "B") is None and namer.sidecars() == {}


def test_a_text_that_two_pins_hold_keeps_the_name_that_is_committed(tmp_path: Path) -> None:
    """Two pins came to hold one text, which is red by itself: that must not rename it in every other file."""
    suite = make_suite(tmp_path, {"a": "pins_header = true", "b": "pins_header = true", "c": ""})
    pins = Pins([Pin("a", 0, "system", "A"), Pin("b", 0, "system", "A")], ["a", "b"])
    line = jsontext.dumps({"type": "request/header", "data": {"header": {"system": "{{system:b}}"}}})
    named = HeaderNamer(pins, suite.scenarios["c"], {"session.jsonl": b"{}\n" + line + b"\n"})
    assert named.header(0, 0, "system", "A") == "{{system:b}}"
    new = HeaderNamer(pins, suite.scenarios["c"], {})
    assert new.header(0, 0, "system", "A") == "{{system:a}}", "the first of the suite"


def test_a_text_that_no_pin_holds_is_compared_with_what_its_own_session_names(tmp_path: Path) -> None:
    """The prompt of a child that changed is not explained by its parent's."""
    suite = make_suite(tmp_path, {"a": "pins_header = true", "b": "pins_header = true", "c": ""})
    pins = Pins([Pin("a", 0, "system", "A"), Pin("b", 0, "system", "B")], ["a", "b"])
    files = {
        name: b"{}\n" + jsontext.dumps({"type": "request/header", "data": {"header": {"system": token}}})
        for name, token in (("session.jsonl", "{{system:a}}"), ("session.1.jsonl", "{{system:b}}"))
    }
    namer = HeaderNamer(pins, suite.scenarios["c"], files)
    assert namer.header(0, 0, "system", "A") == "{{system:a}}"
    assert namer.header(1, 0, "system", "new") == "{{system:b}}"
    (unpinned,) = namer.unpinned
    assert unpinned.committed is pins.all[1] and unpinned.session == 1


def test_pins_are_loaded_in_the_order_of_the_suite(tmp_path: Path) -> None:
    """And written first."""
    suite = make_suite(tmp_path, {"z": "", "b": "pins_header = true", "a": "pins_header = true"})
    (tmp_path / "a/system-prompt.expected.md").write_text("A\n")
    (tmp_path / "b/system-prompt.1.expected.md").write_text("B1\n")
    (tmp_path / "b/tool-schemas.expected.json").write_text("[]\n")
    (tmp_path / "z/system-prompt.expected.md").write_text("no pin\n")
    pins = load_pins(suite)
    assert [pin.name for pin in pins.all] == ["b.1", "b", "a"]
    assert [scenario.name for scenario in write_order(suite, reversed(suite.scenarios.values()))] == [
        "b",
        "a",
        "z",
    ]
    replaced = pins.with_sidecars("b", {"system-prompt.expected.md": b"new\n"})
    assert [(pin.name, pin.value) for pin in replaced.all] == [("b", "new"), ("a", "A")]


def test_names_that_collide_are_refused(tmp_path: Path) -> None:
    """`a.1` cannot be a scenario and the second text of another."""
    suite = make_suite(tmp_path, {"a": "pins_header = true", "a.1": "pins_header = true"})
    (tmp_path / "a/system-prompt.1.expected.md").write_text("A\n")
    with pytest.raises(UsageError, match="rename that scenario"):
        load_pins(suite)


def test_unnamed_tokens_mean_the_only_pin() -> None:
    """In headers and requests, and nowhere else; with two pins they mean nothing."""
    pins = Pins([Pin("a", 0, "system", "A")], ["a"])
    header = b'{"type":"request/header","data":{"header":{"system":"{{system}}","tools":"{{tools}}"}}}\n'
    other = b'{"type":"note","data":{"system":"{{system}}"}}\n'
    full = with_full_names(header + other, pins)
    assert (
        full == header.replace(b"{{system}}", b"{{system:a}}").replace(b"{{tools}}", b"{{tools:a}}") + other
    )
    assert with_full_names(header, Pins([], ["a", "b"])) == header
    assert pins.named("system", "") is not None and Pins(pins.all, ["a", "b"]).named("system", "") is None


# render -----------------------------------------------------------------------------------------------------


def harvest(folder: Path, **facts: Any) -> Harvest:
    """A harvest of nothing."""
    return Harvest(scenario="a", mode="replay", run_dir=folder, workspace=folder, **facts)


def test_a_session_that_logged_nothing_is_named_too(tmp_path: Path) -> None:
    """Its id is on stdout; its fixture is a header."""
    suite = make_suite(tmp_path, {"a": "model_turn = false"})
    sent = frames({"jsonrpc": "2.0", "id": 9, "result": {"sessionId": SESSION}})
    rendered = render(
        harvest(tmp_path, frames=sent, opened=[SESSION]), suite.scenarios["a"], suite, Pins(), {}
    )
    assert rendered.files["session.jsonl"] == HEADER_ONLY
    assert lines(rendered.files["stdout.expected.jsonl"]) == [
        {"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "{{sessionId}}"}}
    ]
    assert rendered.problems == []


def test_a_silent_session_beside_one_with_a_log(tmp_path: Path) -> None:
    """Each keeps a name of its own."""
    suite = make_suite(tmp_path, {"a": ""})
    header = jsontext.dumps(
        {"type": "session", "version": 0, "id": OTHER, "createdAt": 5, "delegationDepth": 0}
    )
    log = read_log(header + b"\n", "x")
    sent = frames({"jsonrpc": "2.0", "id": 1, "result": [SESSION, OTHER]})
    facts = {"frames": sent, "opened": [SESSION, OTHER], "sessions": [log], "bindings": {OTHER: 0}}
    rendered = render(harvest(tmp_path, **facts), suite.scenarios["a"], suite, Pins(), {})
    assert lines(rendered.files["stdout.expected.jsonl"])[0]["result"] == ["{{sessionId:1}}", "{{sessionId}}"]
    assert lines(rendered.files["session.jsonl"])[0]["createdAt"] == 0


def test_an_agent_without_a_log_pins_what_it_asks_with(tmp_path: Path) -> None:
    """Its requests are all that is known of its headers."""
    suite = make_suite(tmp_path, {"a": "pins_header = true"}, '[suite]\nsurfaces = ["requests", "workspace"]')
    calls = [
        request("s", 1, [], system="Prompt"),
        request("s", 2, [], system="Other", purpose="title", tools=None),
    ]
    rendered = render(harvest(tmp_path, requests=calls), suite.scenarios["a"], suite, Pins([], ["a"]), {})
    assert rendered.files["system-prompt.expected.md"] == b"Prompt\n"
    found = lines(rendered.files["requests.expected.jsonl"])
    assert [line["system"] for line in found] == ["{{system:a}}", "Other"]
    assert "workspace.expected.jsonl" in rendered.files and "stdout.expected.jsonl" not in rendered.files

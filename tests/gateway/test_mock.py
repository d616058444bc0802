"""The scripted endpoint: which reply is taken, how it is cut and filled, and what is said if none fits."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onetake import jsontext
from onetake.cli import main
from onetake.errors import UsageError
from onetake.gateway.mock import MockModel
from onetake.gateway.script import load_script, parse_script
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.providers.openai_chat import OpenAIChatProvider

Chunk = dict[str, Any]


def replies(*found: dict[str, Any]) -> dict[str, Any]:
    return {"replies": list(found)}


def reply(text: str = "", **more: Any) -> dict[str, Any]:
    return {"reply": {"text": text, **more}} if text else {"reply": more}


def asking(text: str, system: str | None = None) -> ModelRequest:
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return ModelRequest(
        session_id="s", call=1, config={"provider": "p", "model": "m"}, system=system, messages=[message]
    )


def ask(script: Any, *texts: str, system: str | None = None) -> list[list[Chunk]]:
    """Ask a scripted endpoint once for each text."""

    async def run() -> list[list[Chunk]]:
        async with MockModel(script) as mock:
            adapter = OpenAIChatProvider("p", base_url=mock.base_url, models={"m": ModelInfo(id="m")})
            answers = [[chunk async for chunk in adapter.stream(asking(text, system))] for text in texts]
            await adapter.aclose()
            return answers

    return asyncio.run(run())


def blocks(chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"]


def said(chunks: list[Chunk]) -> str:
    return "".join(block["text"] for block in blocks(chunks) if block["type"] == "text")


def deltas(chunks: list[Chunk]) -> list[str]:
    return [
        chunk.get("text", chunk.get("argumentsDelta")) for chunk in chunks if chunk["type"].endswith("-delta")
    ]


def failure(chunks: list[Chunk]) -> dict[str, Any]:
    found: dict[str, Any] = chunks[-1]["reason"]["failure"]
    return found


def http(method: str, path: str, body: bytes = b"", script: Any = None) -> tuple[int, Any]:
    """Ask a scripted endpoint without the adapter; return status and JSON body."""
    import httpx

    async def run() -> tuple[int, Any]:
        async with MockModel(script or replies(reply("x")), models=("a", "b")) as mock:
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.request(method, mock.base_url + path, content=body)
            return answer.status_code, jsontext.loads(answer.content)

    return asyncio.run(run())


def test_replies_are_taken_in_order_and_used_up() -> None:
    first, second, third = ask(replies(reply("one"), reply("two")), "a", "b", "c")
    assert (said(first), said(second)) == ("one", "two")
    assert failure(third)["code"] == "BAD_REQUEST"
    assert failure(third)["status"] == 400
    assert (
        "no scripted reply fits the request; it ends with 'user\\nc'; replies left: none"
        in failure(third)["message"]
    )


def test_a_reply_waits_for_the_request_that_it_is_for() -> None:
    script = replies(
        {"match": "^user\nb", **reply("for b")}, {"match": "a", "repeat": True, **reply("for a")}
    )
    assert [said(chunks) for chunks in ask(script, "a", "b", "a")] == ["for a", "for b", "for a"]
    (missed,) = ask(script, "x")
    assert "replies left: '^user\\nb', 'a'" in failure(missed)["message"]


def test_a_pattern_is_not_meant_for_the_system_prompt() -> None:
    (chunks,) = ask(replies({"match": "secret", **reply("one")}, reply("two")), "hi", system="a secret")
    assert said(chunks) == "two"


def test_the_system_prompt_tells_apart_who_is_told_the_same() -> None:
    script = replies({"match": "go", "matchSystem": "^system\nnorth", **reply("cold")})
    (missed,) = ask(script, "go", system="south")
    assert "replies left: 'go' with system '^system\\nnorth'" in failure(missed)["message"]
    (chunks,) = ask(script, "go", system="north")
    assert said(chunks) == "cold"
    (missed,) = ask(replies({"matchSystem": "x", **reply("y")}), "go")
    assert "replies left: (any request) with system 'x'" in failure(missed)["message"]


def test_an_answer_has_every_kind_of_block() -> None:
    calls = [
        {"name": "bash", "arguments": {"command": "é"}},
        {"name": "x", "arguments": "{oops", "id": "own"},
    ]
    chunks, more = ask(
        replies(
            reply("Go", reasoning="Hm", toolCalls=calls), reply(toolCalls=[{"name": "y", "arguments": ""}])
        ),
        "a",
        "b",
    )
    assert blocks(chunks) == [
        {"type": "reasoning", "text": "Hm"},
        {"type": "text", "text": "Go"},
        {"type": "tool-call", "id": "call_1", "name": "bash", "arguments": '{"command":"é"}'},
        {"type": "tool-call", "id": "own", "name": "x", "arguments": "{oops"},
    ]
    assert chunks[-1]["reason"] == {"kind": "tool-calls"}
    assert blocks(more) == [{"type": "tool-call", "id": "call_3", "name": "y", "arguments": ""}]


def test_texts_are_cut_as_the_script_says() -> None:
    by_length, by_pieces, default = ask(
        replies(
            reply("abcdefg", deltaChars=3, toolCalls=[{"name": "n", "arguments": "1234"}]),
            reply(pieces=["a", "b\ud83d", "\ude00"]),
            reply("x" * 30),
        ),
        "a",
        "b",
        "c",
    )
    assert deltas(by_length) == ["abc", "def", "g", "", "123", "4"]
    assert deltas(by_pieces) == ["a", "b\ud83d", "\ude00"]
    assert said(by_pieces) == "ab\U0001f600"
    assert [len(piece) for piece in deltas(default)] == [12, 12, 6]


def test_the_delays_of_a_script_change_nothing_but_time() -> None:
    slow, fast = ask(
        replies(reply("abcdef", deltaChars=2, delayMs=1.5), reply("abcdef", deltaChars=2)), "a", "a"
    )
    assert slow == fast


def test_strings_are_filled_from_the_request() -> None:
    script = replies(
        reply(
            "{{fromRequest:path=(\\S+)}} {{fromRequest:\\d{2}}} {{cwd}}",
            toolCalls=[{"name": "bash", "arguments": {"command": ["cat {{fromRequest:path=(\\S+)}}"]}}],
        )
    )
    (chunks,) = ask(script, "path=/a path=/b 123 45")
    assert said(chunks) == "/b 45 {{cwd}}"
    assert blocks(chunks)[1]["arguments"] == '{"command":["cat /b"]}'


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("nowhere", "nothing in the request matches {{fromRequest:nowhere}}"),
        ("(", "is no regular expression"),
    ],
)
def test_a_reply_that_cannot_be_filled_is_refused(pattern: str, message: str) -> None:
    (chunks,) = ask(replies(reply(f"{{{{fromRequest:{pattern}}}}}")), "a")
    assert failure(chunks)["code"] == "BAD_REQUEST"
    assert message in failure(chunks)["message"]


def test_usage_and_finish_can_be_scripted() -> None:
    usage = {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "reasoningTokens": 1}
    (chunks,) = ask(replies(reply("x", usage=usage, finish="max-tokens")), "a")
    assert chunks[-2:] == [
        {"type": "usage", "usage": usage},
        {"type": "finish", "reason": {"kind": "max-tokens"}},
    ]


def test_usage_is_estimated_from_the_lengths_otherwise() -> None:
    first, again, thinking = ask(
        replies(reply("x" * 9), reply("x" * 9), reply("abcd", reasoning="12345")), "a", "a", "a"
    )
    assert first == again
    usage = [chunk["usage"] for chunk in first if chunk["type"] == "usage"]
    assert usage[0]["outputTokens"] == 3
    assert usage[0]["inputTokens"] > 10
    assert thinking[-2]["usage"] == {**usage[0], "outputTokens": 3, "reasoningTokens": 2}


def test_an_empty_reply_is_an_answer_without_content() -> None:
    (chunks,) = ask(replies(reply()), "a")
    assert [chunk["type"] for chunk in chunks] == ["usage", "finish"]


def test_raw_chunks_are_sent_as_they_are() -> None:
    start = {"type": "block-start", "index": 0, "blockType": "text"}
    sent = [start, {"type": "text-delta", "index": 0, "text": "Hi {{fromRequest:a.}}"}]
    finish = {"type": "finish", "reason": {"kind": "stop"}}
    whole, cut = ask(replies(reply(chunks=[*sent, finish]), reply(chunks=sent)), "ab", "ac")
    assert said(whole) == "Hi ab"
    assert deltas(cut) == ["Hi ac"]
    assert failure(cut)["code"] == "STREAM_CLOSED"


def test_errors_come_before_an_answer_or_inside_it() -> None:
    error = {"status": 429, "message": "slow down", "code": "rate_limit_exceeded", "retryAfterMs": 70}
    before, inside, plain = ask(
        replies(reply(error=error), reply("par", error=error), reply(error={})), "a", "a", "a"
    )
    assert failure(before) == {
        "message": "slow down",
        "code": "RATE_LIMIT",
        "status": 429,
        "providerRetryAfterMs": 70,
    }
    assert deltas(inside) == ["par"]
    assert failure(inside) == {"message": "slow down", "code": "RATE_LIMIT", "status": 429}
    assert failure(plain) == {"message": "a scripted failure", "code": "SERVER_ERROR", "status": 500}


def test_requests_are_kept_and_written_down_without_headers(tmp_path: Path) -> None:
    file = tmp_path / "asked.jsonl"

    async def run() -> list[Any]:
        async with MockModel(replies(reply("x"), reply("y")), capture=file) as mock:
            adapter = OpenAIChatProvider(
                "p",
                base_url=mock.base_url,
                models={},
                api_key="hunter2-hunter2",
                headers={"x-key": "hunter3-hunter3"},
            )
            for text in ("one", "two", "three"):
                async for _ in adapter.stream(asking(text)):
                    pass
            await adapter.aclose()
            return mock.requests

    requests = asyncio.run(run())
    lines = file.read_bytes().removesuffix(b"\n").split(b"\n")
    assert [jsontext.loads(line) for line in lines] == requests
    assert [body["messages"][0]["content"] for body in requests] == ["one", "two", "three"]
    assert b"hunter" not in file.read_bytes()


def test_a_client_may_ask_for_a_whole_answer() -> None:
    body = jsontext.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}]})
    status, answer = http("POST", "/chat/completions", body)
    assert status == 200
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "x"}
    assert answer["usage"]["completion_tokens"] == 1
    status, answer = http("POST", "/chat/completions", body, replies(reply("x", error={"status": 503})))
    assert (status, answer["error"]["message"]) == (503, "a scripted failure")


def test_a_whole_answer_may_hang_too() -> None:
    import httpx

    async def run() -> None:
        async with (
            MockModel(replies(reply("x", hang=True))) as mock,
            httpx.AsyncClient(trust_env=False) as client,
        ):
            body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
            with pytest.raises(httpx.ReadTimeout):
                await client.post(f"{mock.base_url}/chat/completions", json=body, timeout=0.2)

    asyncio.run(run())


def test_the_models_are_listed() -> None:
    status, answer = http("GET", "/models")
    assert (status, [model["id"] for model in answer["data"]]) == (200, ["a", "b"])


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/chat/completions"), ("POST", "/models"), ("GET", "/")]
)
def test_there_is_nothing_elsewhere(method: str, path: str) -> None:
    status, answer = http(method, path)
    assert (status, answer["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model":"m","messages":[]}'])
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    status, answer = http("POST", "/chat/completions", body)
    assert (status, answer["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([], "Expected `object`"),
        ({}, "missing required field `replies`"),
        (replies({"reply": {"txt": "x"}}), "unknown field `txt` - at `$.replies[0].reply`"),
        (replies({"reply": {}, "repeat": 1}), "Expected `bool`"),
        (replies(reply("x"), {"match": "(", "reply": {}}), r"replies[1]: match is no regular expression"),
        (replies({"match": "a{99999999999}", "reply": {}}), "match is no regular expression"),
        (replies({"matchSystem": "(", "reply": {}}), "replies[0]: matchSystem is no regular expression"),
        (
            replies(reply("x", finish="done")),
            "replies[0]: finish must be stop, tool-calls or max-tokens, not 'done'",
        ),
        (replies(reply("x", deltaChars=0)), "replies[0]: deltaChars must be at least 1"),
        (replies(reply("x", pieces=["x"])), "replies[0]: text and pieces exclude each other"),
        (replies(reply("x", chunks=[])), "replies[0]: chunks exclude"),
        (
            replies(reply(chunks=[{"type": "usage"}])),
            "replies[0]: chunks[0] cannot be sent: KeyError('usage')",
        ),
        (
            replies(reply(chunks=[{"type": "x"}, {}])),
            "replies[0]: chunks[1] cannot be sent: KeyError('type')",
        ),
        (
            replies(reply(chunks=[{"type": "block-end", "index": 0, "block": {"type": "image"}}])),
            "an answer cannot carry a block of type 'image'",
        ),
    ],
)
def test_a_script_that_is_not_well_formed_is_refused_with_its_place(script: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_script(script, "mock.json")
    assert message in str(caught.value)
    assert "mock.json: " in str(caught.value)


def test_a_script_that_is_no_json_is_refused_with_its_name() -> None:
    with pytest.raises(UsageError, match=r"mock\.json: .*byte 1"):
        load_script(b"{", "mock.json")


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onetake", "mock-model", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_a_signal_comes(tmp_path: Path, number: signal.Signals) -> None:
    script, capture, port_file = (tmp_path / name for name in ("script.json", "asked.jsonl", "port"))
    script.write_text(
        '{"replies": [{"reply": {"text": "Hello"}}, {"reply": {"text": "part", "hang": true}}]}'
    )
    told_by_file = number == signal.SIGTERM
    more = ["--port-file", str(port_file)] if told_by_file else []
    process = start("--script", str(script), "--capture", str(capture), *more)
    assert process.stdout is not None
    with process:
        line = process.stdout.readline()
        assert re.fullmatch(r"mock-model: http://127\.0\.0\.1:\d+/v1\n", line)
        if told_by_file:
            assert f":{int(port_file.read_text())}/" in line

        async def run() -> None:
            adapter = OpenAIChatProvider("p", base_url=line.split()[1], models={})
            assert said([chunk async for chunk in adapter.stream(asking("hi"))]) == "Hello"
            async for chunk in adapter.stream(asking("hang")):
                if chunk["type"] == "text-delta":
                    os.kill(process.pid, number)
            assert await asyncio.to_thread(process.wait, 20) == 0
            await adapter.aclose()

        asyncio.run(run())
        assert process.stdout.read() == ""
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert len(capture.read_bytes().splitlines()) == 2
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--script", "missing.json"],
            "onetake: missing.json: cannot be read: No such file or directory; --script",
        ),
        (["--script", "bad.json"], "bad.json: "),
    ],
)
def test_the_command_refuses_what_it_cannot_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    assert main(["mock-model", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_help_explains_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mock-model", "--help"]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in ("--capture", '"deltaChars"', "{{fromRequest:REGEX}}", '"hang"'))

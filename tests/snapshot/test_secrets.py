"""Secrets are found in every spelling; what only looks like one is left alone."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.snapshot.guard.secrets import SHAPES, Shape, find_secrets, keylike_values

TAIL = "abcdEFGH0123456789abcdEFGH0123456789abcdEFGH"
SECRETS = {
    "API key": f"sk-{TAIL}",
    "API key with a prefix": f"sk-proj-{TAIL}",
    "AWS access key": "AKIA" + "ABCDEFGH12345678",
    "GitHub token": f"ghp_{TAIL}",
    "fine-grained GitHub token": f"github_pat_{TAIL}",
    "GitLab token": f"glpat-{TAIL}",
    "Slack token": "xoxb-" + "123456789012-abcdef",
    "Google API key": f"AIza{TAIL}",
    "Hugging Face token": f"hf_{TAIL}",
    "package registry token": f"npm_{TAIL}",
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "JSON web token": f"eyJ{TAIL}.eyJ{TAIL}.{TAIL}",
    "bearer token": f"Authorization: Bearer {TAIL}",
    "bearer token outside of a header": f"it sent bearer {TAIL} and was let in",
    "authorization header": "authorization: Basic " + "dXNlcjpwYXNzd29yZA==",
    "authentication header": f"x-api-key: {TAIL}",
    "bearer token without figures": "Authorization: Bearer opensesameopen",
    "cookie": f"Set-Cookie: session={TAIL}; Path=/",
    "cookie in small letters": "set-cookie: sid=s3cr3t; HttpOnly",
    "cookie in capitals": "SET-COOKIE: SID=abcdef123456",
    "cookie that is sent": "Cookie: session=abcdef123456",
    "cookie that is percent-encoded": "Set-Cookie: connect.sid=s%3Aabcdef; Path=/",
    "cookie in quotes": 'Set-Cookie: sid="abcdef123456"; Path=/',
    "second of the cookies": "Cookie: lang=en; session=abcdef123456",
    "key of a service": "sk-lf-01234567-89ab-cdef-0123-456789abcdef",
    "key in a URL": f"https://example.com/v1?api_key={TAIL}",
    "short key in a URL": "https://example.com/v1?page=2&api_key=abc123",
    "key in a URL, other spelling": "https://example.com/v1?Api-Key=abcdefghijklmnop",
}
HARMLESS = [
    "call_00_fkbBRJsUrGKd1pWVc4Gn8233",
    "toolu_01A09q90qw90lq917835lq9",
    "chatcmpl-9f8e7d6c5b4a39281706f5e4d3c2b1a0",
    "3e25dc34-48e0-4738-8401-1a8d181d37e5",
    "Authorization: Bearer $TOKEN",
    "curl -H 'Authorization: Bearer <your token>'",
    "set ?key=value in the URL",
    "set ?api_key=your_api_key_here in the URL",
    "?api_key={{cwd}}",
    "the bearer of this letter is my brother",
    "the task-management-of-a-long-kebab-case-name",
    "risk-assessment-of-everything-there-is-in-here",
    "ask-the-user-for-the-name-of-the-folder-first",
    "c0ad567de4a6163c243decceb4a0c31daa9a224e",
    "Cookie: none",
    "Set-Cookie: a=1; Path=/; HttpOnly; SameSite=Strict",
    "Set-Cookie: session=deleted; Max-Age=0",
    "Authorization: Bearer YOUR_API_KEY",
    "Authorization: Basic authentication is required",
    "X-Api-Key: your-api-key-here",
    "?token=placeholder-token",
    "pk_customer_orders_history_archive",
    "pk_orders_2024_archive_partition_01",
    "sk-estimator-checks-and-utilities",
    "{{cwd}} {{msg:1.1}}",
]


def kinds(data: bytes, **environ: str) -> list[str]:
    """What is found in one file."""
    return [secret.what for secret in find_secrets({"f": data}, environ)]


@pytest.mark.parametrize("what", SECRETS)
def test_shapes_are_found_raw_and_escaped_and_nested(what: str) -> None:
    """As text, in a JSON string, in JSON in JSON, and as a header object."""
    secret = SECRETS[what]
    assert kinds(secret.encode()), "raw"
    once = json.dumps({"type": "x", "text": f"it said {secret}"})
    assert kinds(once.encode()), "in JSON"
    assert kinds(json.dumps({"type": "x", "arguments": once}).encode()), "in JSON in JSON"
    name, colon, value = secret.partition(": ")
    if colon:
        assert kinds(json.dumps({"headers": {name: value}}).encode()), "as an object"
        assert kinds(json.dumps({"arguments": json.dumps({name: value})}).encode()), (
            "as an object in a string"
        )


@pytest.mark.parametrize("what", SECRETS)
def test_fragments_of_a_row_are_joined(what: str) -> None:
    """A model that repeats a key streams it in pieces."""
    text = SECRETS[what]
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    row = {"type": "text-chunks", "data": {"turn": 1, "step": 1, "index": 0, "dt": [], "texts": pieces}}
    assert kinds(json.dumps(row).encode())
    call = {"type": "tool-call-chunks", "data": {"turn": 1, "step": 1, "index": 0, "dt": [], "args": pieces}}
    assert kinds(json.dumps(call).encode())


@pytest.mark.parametrize("what", SECRETS)
def test_encoded_texts_are_read(what: str) -> None:
    """By themselves and within JSON, wrapped as `base64` does it, and wherever the encoded text begins."""
    secret = SECRETS[what]
    for before in ("", "x", "xy"):
        coded = base64.b64encode(f"{before} the answer: {secret}\n".encode()).decode()
        wrapped = "\n".join(coded[at : at + 76] for at in range(0, len(coded), 76))
        for text in (coded, wrapped, coded.replace("+", "-").replace("/", "_").rstrip("=")):
            assert kinds(json.dumps({"text": text}).encode()), "in Base64"
    assert kinds(f"redirect={quote(secret, safe='')}".encode()), "percent-encoded"
    assert kinds(json.dumps({"text": quote(secret)}).encode()), "percent-encoded but for slashes"


@pytest.mark.parametrize("name", ["Set-Cookie", "X-Api-Key", "Authorization"])
def test_headers_in_every_form_in_which_programs_show_them(name: str) -> None:
    """Pairs, objects with a name and a value, and what Python prints of bytes."""
    value = {"Set-Cookie": "sid=abcdef123456", "Authorization": "Bearer abcdefghijkl"}.get(name, TAIL)
    shown: list[str] = [
        json.dumps([[name, value]]),
        json.dumps([{"name": name, "value": value}], indent=2),
        str([(name.lower().encode(), value.encode()), (b"host", b"example.com")]),
        str({name: value}),
    ]
    for text in shown:
        assert kinds(text.encode()), text
        assert kinds(json.dumps({"t": json.dumps({"arguments": text})}).encode()), text


def test_frames_of_a_message_are_joined() -> None:
    """An agent that streams has cut a key anywhere; another session's frames lie between."""

    def frame(text: str, session: str = "{{sessionId}}") -> str:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        return json.dumps({"jsonrpc": "2.0", "params": {"sessionId": session, "update": update}})

    key = SECRETS["API key"]
    assert kinds("\n".join([frame(key[:9]), frame("x", "{{sessionId:1}}"), frame(key[9:])]).encode())
    assert not kinds("\n".join([frame(key[:9]), frame(key[9:], "{{sessionId:1}}")]).encode())


def test_deltas_that_are_no_row_are_joined_too() -> None:
    """Two pieces are too few for a row, and still a key."""

    def chunk(text: str, index: int = 0) -> str:
        delta = {"type": "text-delta", "index": index, "text": text}
        return json.dumps({"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": delta}})

    key = SECRETS["API key"]
    assert kinds("\n".join([chunk(key[:9]), chunk("other", 1), chunk(key[9:])]).encode())
    assert not kinds("\n".join([chunk(key[:9]), chunk(key[9:], 1)]).encode())


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret(text: str) -> None:
    """Ids, digests, placeholders and tokens of ours."""
    assert kinds(text.encode()) == []
    assert kinds(json.dumps({"type": "x", "text": text}).encode()) == []


def test_values_of_key_like_variables() -> None:
    """By name, trimmed, when they are long enough to mean something."""
    environ = {
        "DEEPSEEK_API_KEY": "opensesame",
        "MY_TOKEN": "true",
        "db_password": "correct horse",
        "ROOT_PASSWD": "hunter2",
        "LOCAL_KEY": "ollama",
        "PGPASSWORD": "correct staple",
        "MYSQL_PWD": "battery horse",
        "PWD": "/home/somebody/work",
        "OLDPWD": "/home/somebody/other",
        "KEYBOARD": "qwertzuiop",
        "MONKEY_NAME": "bananabanana",
        "SSHPASS": "hunter2",
        "NPMTOKEN": "openbarley",
        "ServiceApiKey": "openbarley",
        "MODEL_KEY2": "openbarley",
        "DATABASE_URL": "postgres://somebody:hunter2@db/x",
        "HOMEPAGE_URL": "https://example.com/x?y=a:b@c",
        "MAX_TOKENS_SETTING": "128000",
        "SSH_AUTH_SOCK": "/tmp/agent/socket",
        "HOME": "/home/somebody",
    }
    assert set(keylike_values(environ)) == {
        "DEEPSEEK_API_KEY",
        "db_password",
        "ROOT_PASSWD",
        "PGPASSWORD",
        "MYSQL_PWD",
        "SSHPASS",
        "NPMTOKEN",
        "ServiceApiKey",
        "MODEL_KEY2",
        "DATABASE_URL",
    }
    found = find_secrets({"a": b"line\nit says opensesame", "b": b'{"t":"correct horse"}'}, environ)
    assert [(s.file, s.line, s.what) for s in found] == [
        ("a", 2, "the value of the variable DEEPSEEK_API_KEY"),
        ("b", 1, "the value of the variable db_password"),
    ]
    assert "opensesame" not in found[0].text() and "a, line 2" in found[0].text()


def test_a_value_in_a_url_is_found() -> None:
    """Percent-encoded."""
    found = kinds(b"https://example.com/?q=p%40ss%2Fword", DB_PASSWORD="p@ss/word")
    assert found == ["the value of the variable DB_PASSWORD, percent-encoded"]


VALUE = 's3"cr3t\\ pä+ss/'


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"arguments": json.dumps({"command": VALUE})}),
        json.dumps({"t": json.dumps({"arguments": json.dumps({"command": VALUE})})}),
        json.dumps([{"description": f"x {VALUE}"}], indent=2),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        quote_plus(VALUE),
        quote(VALUE),
        quote(VALUE, safe="").replace("%2F", "%2f"),
        *(base64.b64encode((before + VALUE + "yz").encode()).decode() for before in ("", "a", "ab")),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
        base64.encodebytes(b"line of text\n" * 5 + VALUE.encode()).decode(),
    ],
)
def test_a_value_is_found_in_every_disguise(text: str) -> None:
    """As text of its own, and as a string of a log."""
    for data in (text, json.dumps({"type": "x", "text": f"it said:\n{text}"})):
        (found,) = find_secrets({"f": data.encode()}, {"MY_KEY": VALUE})
        assert found.what.startswith("the value of the variable MY_KEY")


def test_a_value_of_several_lines_is_found_in_a_text() -> None:
    """A prompt has lines too, and says its value in several of them."""
    found = find_secrets({"p.md": b"before\nopen\nsesame\nafter"}, {"MY_KEY": "open\nsesame"})
    assert [secret.what for secret in found] == ["the value of the variable MY_KEY"]


def test_an_id_of_a_call_is_no_secret_even_where_keys_are_looked_for() -> None:
    """Providers hand them out; they open nothing."""
    for call_id in ("toolu_01A09q90qw90lq917835lq9", "call_00_fkbBRJsUrGKd1pWVc4Gn8233", "call_abc123"):
        result = {"type": "tool-result", "toolCallId": call_id, "content": [{"type": "text", "text": "ok"}]}
        assert kinds(json.dumps(result).encode(), SOME_API_KEY="opensesame") == []


def test_a_value_with_quotes_is_found_in_json() -> None:
    """Where it is escaped."""
    assert kinds(json.dumps({"t": 'a "quoted" value\n'}).encode(), APP_SECRET='a "quoted" value')


def test_each_kind_once_a_line() -> None:
    """A line with ten keys is one find."""
    assert len(kinds((SECRETS["API key"] + " ").encode() * 10)) == 1


def test_lines_that_are_no_json_are_text() -> None:
    """A prompt, or a broken line."""
    assert kinds(b'{"broken": ' + SECRETS["API key"].encode())
    assert kinds(b"\xff\xfe" + SECRETS["API key"].encode())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.what)
@given(data=st.data())
def test_what_a_shape_needs_is_in_everything_it_matches(shape: Shape, data: st.DataObject) -> None:
    """Otherwise a secret would be passed over without a look."""
    match = data.draw(st.from_regex(shape.pattern))
    assert any(need in match.casefold() for need in shape.needs)

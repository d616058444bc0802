"""The tool as a model meets it."""

from __future__ import annotations

import asyncio
import json
import os
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onetake.agent.context import AppContext
from onetake.toolkit.bash.plugin import bash as plugin
from onetake.toolkit.bash.tool import BashConfig, bash_tool, shell_environment
from onetake.tools.execution import execute
from onetake.tools.registry import ToolContext, ToolRegistry, ToolResult


def run(
    cwd: Path,
    command: str,
    *,
    config: BashConfig | None = None,
    env: dict[str, str] | None = None,
    ordinal: int = 1,
    **arguments: Any,
) -> ToolResult:
    registry = ToolRegistry()
    registry.register(bash_tool(config))
    context = ToolContext(
        session_id="s",
        call_id="c",
        turn=2,
        step=3,
        ordinal=ordinal,
        cwd=cwd,
        spill_dir=cwd / "spill",
        env={"PATH": os.environ["PATH"], **(env or {})},
    )
    raw = json.dumps({"command": command, **arguments})
    return asyncio.run(execute(registry, "bash", raw, context))


def text(result: ToolResult) -> str:
    (block,) = result.content
    assert list(block) == ["type", "text"]
    return str(block["text"])


def test_a_command_that_works(tmp_path: Path) -> None:
    result = run(tmp_path, "echo hello", description="Say hello")
    assert result == ToolResult(content=[{"type": "text", "text": "hello\n"}])


def test_an_exit_status_is_no_error_of_the_tool(tmp_path: Path) -> None:
    result = run(tmp_path, "false")
    assert (text(result), result.is_error, result.error) == ("(no output)\n[exit code: 1]", False, None)


def test_every_call_starts_afresh(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    run(tmp_path, "cd sub; export X=1; f() { :; }")
    out = text(run(tmp_path, 'pwd; echo "x=$X"; type f'))
    assert out.startswith(f"{tmp_path}\nx=\n")
    assert out.endswith("[exit code: 1]")


def test_workdir_starts_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert text(run(tmp_path, "pwd", workdir="sub")) == f"{tmp_path}/sub\n"
    assert text(run(tmp_path / "sub", "pwd", workdir="..")) == f"{tmp_path}\n"
    assert text(run(tmp_path, "pwd", workdir="/")) == "/\n"


def test_a_workspace_behind_a_link_keeps_its_spelling(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert text(run(tmp_path / "link", "pwd")) == f"{tmp_path}/link\n"


@pytest.mark.parametrize("workdir", ["missing", "file", "nul\x00", "x" * 5000])
def test_a_workdir_that_is_none_is_refused(tmp_path: Path, workdir: str) -> None:
    (tmp_path / "file").touch()
    result = run(tmp_path, "pwd", workdir=workdir)
    assert result.error == {"name": "WorkdirError", "code": "NO_SUCH_WORKDIR"}
    assert text(result).endswith("is not a directory")


def test_no_startup_file_is_read(tmp_path: Path) -> None:
    for name in (".bashrc", ".bash_profile", ".profile", "env"):
        (tmp_path / name).write_text("echo intruder")
    env = {
        "HOME": str(tmp_path),
        "BASH_ENV": str(tmp_path / "env"),
        "ENV": str(tmp_path / "env"),
        "BASH_FUNC_echo%%": "() { printf intruder; }",
        "SHELLOPTS": "xtrace",
    }
    assert text(run(tmp_path, "echo clean", env=env)) == "clean\n"


def test_hidden_variables_do_not_reach_the_command(tmp_path: Path) -> None:
    env = {"ONETAKE_RUN": "r", "DEEPSEEK_API_KEY": "k", "my_api_key": "k", "KEPT": "yes"}
    out = text(run(tmp_path, "env", env=env))
    assert "KEPT=yes\n" in out
    assert not any(name in out for name in ("ONETAKE_RUN", "API_KEY", "api_key"))


def test_the_environment_of_the_agent_is_passed_on(tmp_path: Path) -> None:
    env = {"LANG": "C.UTF-8", "TZ": "UTC", "OLDPWD": "/old", "PWD": "/wrong"}
    assert shell_environment(env, tmp_path) == {"LANG": "C.UTF-8", "TZ": "UTC", "PWD": str(tmp_path)}


def test_the_time_limit_is_reported_with_what_was_written(tmp_path: Path) -> None:
    result = run(tmp_path, "echo started; sleep 600", timeoutMs=2000)
    assert text(result) == "started\n[timed out after 2000 ms; the command and all it had started were ended]"
    assert result.error == {"name": "CommandError", "code": "TIMEOUT"}
    assert result.is_error


def test_a_call_cannot_ask_for_more_time_than_the_harness_grants(tmp_path: Path) -> None:
    config = BashConfig(default_timeout_ms=100, max_timeout_ms=200)
    assert "timed out after 200 ms" in text(run(tmp_path, "sleep 600", config=config, timeoutMs=1e9))
    assert "timed out after 100 ms" in text(run(tmp_path, "sleep 600", config=config))


@pytest.mark.parametrize("timeout", [0, -5, "1", None])
def test_a_time_limit_that_makes_no_sense_is_refused(tmp_path: Path, timeout: Any) -> None:
    result = run(tmp_path, "echo x", timeoutMs=timeout)
    assert result.error is not None and result.error["code"] == "INVALID_ARGUMENTS"
    assert "timeoutMs" in text(result)


def test_an_unknown_argument_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, "echo x", run_in_background=True)
    assert 'unknown property "run_in_background"' in text(result)


def test_a_flood_is_reported(tmp_path: Path) -> None:
    config = BashConfig(max_captured_bytes=100_000, max_output_bytes=500)
    result = run(tmp_path, "yes", config=config)
    assert result.error == {"name": "CommandError", "code": "TOO_MUCH_OUTPUT"}
    assert "y\n[ended because it wrote more than 100000 bytes]\n\n(" in text(result)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo '\ud800'", "half of a surrogate pair"),
        ("echo a\x00b", "null"),
        ("x" * 300_000, "too long for the system"),
    ],
)
def test_a_command_that_cannot_be_passed_on_is_explained(tmp_path: Path, command: str, why: str) -> None:
    if len(command) > 1000 and not os.path.isdir("/proc/self"):
        pytest.skip("the limit for one argument is a matter of Linux")
    result = run(tmp_path, command)
    assert result.error == {"name": "SpawnError", "code": "NOT_STARTED"}
    assert why in text(result)


def test_a_missing_bash_is_explained(tmp_path: Path) -> None:
    result = run(tmp_path, "echo x", env={"PATH": str(tmp_path)})
    assert text(result) == "Error: the command could not be run: bash was not found on PATH"


def test_a_workdir_without_access_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: Any, **options: Any) -> Any:
        raise PermissionError(13, "Permission denied", "/w")

    monkeypatch.setattr("subprocess.Popen", denied)
    assert "Permission denied" in text(run(tmp_path, "echo x"))


def test_a_long_output_is_spilled_under_a_name_that_replays(tmp_path: Path) -> None:
    config = BashConfig(max_output_bytes=800)
    script = "printf SPILL_START-; head -c 2000 /dev/zero | tr '\\0' x; printf -- -SPILL_END"
    whole = "SPILL_START-" + "x" * 2000 + "-SPILL_END"
    for ordinal in (1, 2):
        shown = text(run(tmp_path, script, config=config, ordinal=ordinal))
        spill = tmp_path / "spill" / f"bash-2.3.{ordinal}.txt"
        assert spill.read_text() == whole
        assert str(spill) in shown
        assert 790 < len(shown) <= 800
        body = shown.partition("\n\n")[0]
        assert body == "SPILL_START-" + "x" * body.count("x") + "-SPILL_END"


def test_bash_results_of_the_corpus_are_reproduced(shared_dir: Path, tmp_path: Path) -> None:
    """Commands that need nothing but a shell give the very text that is recorded there."""
    compared = 0
    for path in sorted((shared_dir / "dsh-corpus").rglob("session*.jsonl")):
        calls: dict[str, Any] = {}
        for line in path.read_bytes().split(b"\n")[1:-1]:
            event = json.loads(line)
            data = event.get("data") or {}
            if event["type"] == "tool/call" and data["name"] == "bash":
                calls[data["callId"]] = json.loads(data["arguments"])
            elif event["type"] == "tool/result" and "message" in data:
                (answer,) = data["message"]["content"]
                arguments = calls.pop(answer["toolCallId"], {"command": ""})
                command = arguments["command"]
                if answer["isError"] or not command.startswith(("echo", "printf")) or ">" in command:
                    continue
                assert run(tmp_path, **arguments).content == answer["content"], path
                compared += 1
    assert compared >= 5


def test_limits_are_checked() -> None:
    assert msgspec.convert({}, BashConfig) == BashConfig()
    for bad in ({"max_output_bytes": 0}, {"default_timeout_ms": 7, "max_timeout_ms": 5}, {"nope": 1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, BashConfig)


def test_the_schema_names_what_recorded_calls_use() -> None:
    schema = bash_tool().parameters
    assert list(schema["properties"]) == ["command", "description", "workdir", "timeoutMs"]
    assert schema["required"] == ["command"]
    assert [each["type"] for each in schema["properties"].values()] == [
        "string",
        "string",
        "string",
        "number",
    ]


def test_the_plugin_registers_the_tool_while_it_runs(tmp_path: Path) -> None:
    async def check() -> None:
        ctx = AppContext(config_dir=tmp_path, environ={})
        async with plugin(ctx, BashConfig(max_output_bytes=99)):
            assert ctx.tools.names() == ["bash"]
        assert ctx.tools.names() == []

    asyncio.run(check())


def test_the_config_type_of_the_plugin_can_be_found() -> None:
    assert typing.get_type_hints(plugin)["config"] is BashConfig

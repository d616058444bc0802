"""Facts about the repository itself that are easy to break and that no other test would notice.

Each guard is a pure function over (path, text) pairs that returns what it found, so that the same function is
shown a bad example here: a guard that cannot go red guards nothing.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from onetake import __version__

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400

MACHINE_PATH = re.compile(r"(^|[^A-Za-z0-9_.-])/(work|farm|root)/")
ADDRESS = re.compile(r"[a-z+]+://|--(extra-)?index-url|--find-links|-f ")
LOCK_NAME = re.compile(
    r"(requirements[^/]*\.txt|constraints[^/]*\.txt|[^/]*\.lock|pylock[^/]*\.toml|package-lock\.json)$"
)
PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+( ;.*)?$")


def tracked() -> list[Path]:
    """Every file that git tracks and the work tree still has."""
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [path for name in out.split("\0") if name and (path := ROOT / name).is_file()]


def texts(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """The (name, text) pairs of the files that are UTF-8 text."""
    for path in paths:
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_bytes().decode()
        except UnicodeDecodeError:
            continue


def machine_paths(files: Iterable[tuple[str, str]]) -> list[str]:
    """Lines that name a folder of one particular machine."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in files
        for number, line in enumerate(text.split("\n"), 1)
        if MACHINE_PATH.search(line)
    ]


def lock_addresses(files: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of lock files that say where to download from: a lock holds versions and hashes only."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in files
        if LOCK_NAME.search(name)
        for number, line in enumerate(text.split("\n"), 1)
        if ADDRESS.search(line)
    ]


def unhashed(files: Iterable[tuple[str, str]]) -> list[str]:
    """Requirements that are not pinned to one version, or whose wheels are not pinned by hash."""
    found = []
    for name, text in files:
        joined = text.replace("\\\n", " ")
        for line in joined.split("\n"):
            requirement, *hashes = line.split("--hash=sha256:")
            if not requirement.strip() or requirement.lstrip().startswith("#"):
                continue
            if not PINNED.fullmatch(requirement.strip()) or not hashes:
                found.append(f"{name}: {requirement.strip()[:120]}")
    return found


def long_modules(files: Iterable[tuple[str, str]]) -> list[str]:
    """Modules so long that they surely hold a second concept."""
    return [f"{name}: {n} lines" for name, text in files if (n := text.count("\n")) > MAX_LINES]


def without_docstring(files: Iterable[tuple[str, str]]) -> list[str]:
    """Modules that do not say which problem they solve; an empty `__init__.py` is none."""
    return [name for name, text in files if text.strip() and not ast.get_docstring(ast.parse(text))]


def own_depth(files: Iterable[tuple[str, str]]) -> list[str]:
    """Property tests that set their own number of examples, and so would dig no deeper in the nightly run."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in files
        for number, line in enumerate(text.split("\n"), 1)
        if re.search(r"\bmax_examples\s*=\s*\d", line)
    ]


def unshown(text: str, commands: Iterable[str]) -> list[str]:
    """Commands that a text does not show."""
    return [command for command in commands if command not in text]


def sources() -> list[tuple[str, str]]:
    """The (name, text) pairs of our modules."""
    return list(texts(path for path in (ROOT / "src").rglob("*.py")))


def requirement_files() -> list[tuple[str, str]]:
    """The (name, text) pairs of the pinned requirement files."""
    return list(texts(sorted(ROOT.glob("requirements*.txt"))))


def test_no_file_names_a_folder_of_one_machine() -> None:
    assert machine_paths(texts(tracked())) == []


@pytest.mark.parametrize("folder", ["work", "farm", "root"])
def test_a_machine_path_is_found(folder: str) -> None:
    assert machine_paths([("a.md", f"see\n`/{folder}/main/x`")]) == [f"a.md:2: `/{folder}/main/x`"]
    assert machine_paths([("a.md", f"net/{folder}/main and /{folder}s/x")]) == []


def test_lock_files_hold_no_addresses() -> None:
    assert lock_addresses(texts(tracked())) == []


@pytest.mark.parametrize(
    "line",
    [
        "--index-url x",
        "--extra-index-url x",
        "--find-links wheels",
        "a @ file:///x",
        "a @ https" + "://x/a.whl",
    ],
)
def test_an_address_in_a_lock_file_is_found(line: str) -> None:
    assert len(lock_addresses([("requirements-dev.txt", f"a==1\n{line}\n")])) == 1
    assert lock_addresses([("README.md", line)]) == []


def test_every_requirement_is_pinned_by_hash() -> None:
    files = requirement_files()
    assert {name for name, _ in files} >= {
        "requirements.txt",
        "requirements-dev.txt",
        "requirements-record.txt",
    }
    assert unhashed(files) == []


@pytest.mark.parametrize("text", ["httpx==1.0\n", "httpx>=1.0 --hash=sha256:00\n", "-r other.txt\n"])
def test_a_requirement_without_pin_or_hash_is_found(text: str) -> None:
    assert len(unhashed([("requirements.txt", text)])) == 1
    assert unhashed([("requirements.txt", "# note\na==1 \\\n    --hash=sha256:00\n    # via b\n")]) == []


def test_no_module_is_too_long() -> None:
    assert long_modules(sources()) == []


def test_a_module_that_is_too_long_is_found() -> None:
    assert long_modules([("a.py", "\n" * MAX_LINES), ("b.py", "\n" * (MAX_LINES + 1))]) == ["b.py: 401 lines"]


def test_every_module_says_which_problem_it_solves() -> None:
    assert without_docstring(sources()) == []


def test_a_module_without_docstring_is_found() -> None:
    assert without_docstring([("a.py", "import os\n"), ("b.py", '"""Why."""\n'), ("__init__.py", "")]) == [
        "a.py"
    ]


def test_no_property_test_sets_its_own_depth() -> None:
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    assert own_depth(texts(tests)) == []


def test_a_property_test_that_sets_its_own_depth_is_found() -> None:
    assert own_depth([("t.py", "\n@settings(max_examples=50)")]) == ["t.py:2: @settings(max_examples=50)"]
    assert own_depth([("t.py", "few = settings(max_examples=settings().max_examples // 4)")]) == []


def test_the_readme_shows_the_two_commands_a_newcomer_needs() -> None:
    assert unshown((ROOT / "README.md").read_text(), ["make demo", "make test"]) == []
    assert unshown("make tests", ["make demo", "make test"]) == ["make demo"]


def test_ci_runs_what_contributors_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run must be executable"
    assert {"make test", "make agents"} <= set(script.read_text().split("\n"))


def test_the_build_backend_is_the_one_that_is_pinned() -> None:
    """The project is built without isolation, so the backend must come from the requirement files."""
    backends = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    lines = (ROOT / "requirements.in").read_text().split("\n")
    assert [line for line in lines if line and not line.startswith("#")] == backends


def test_both_requirement_files_pin_the_same_versions() -> None:
    """What users run (requirements.txt) is what the tests saw (requirements-dev.txt)."""
    pins = {name: set(re.findall(r"^\S+==\S+", text, re.M)) for name, text in requirement_files()}
    assert pins["requirements.txt"] - pins["requirements-dev.txt"] == set()


def versions(files: Iterable[tuple[str, str]]) -> list[str]:
    """Expected transcripts that the next release of onetake would turn red."""
    return [
        name
        for name, text in files
        if name.endswith("stdout.expected.jsonl") and f'"version":"{__version__}"' in text
    ]


def test_no_example_pins_our_version() -> None:
    """People copy examples, and then upgrade."""
    assert versions(texts(tracked())) == []
    line = f'{{"agentInfo":{{"name":"onetake","version":"{__version__}"}}}}'
    assert versions([("a/stdout.expected.jsonl", line)]) == ["a/stdout.expected.jsonl"]


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony is not None
    shown = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(phony.group(1).split()) == {line.split()[0] for line in shown.splitlines()}

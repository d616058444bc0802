"""A scripted endpoint in a thread of its own, for code that blocks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from onetake.gateway.mock import MockModel


class Endpoint:
    """Serves a script while the context is entered, which gives the base URL."""

    def __init__(self, script: Any) -> None:
        self._script = script
        self._up, self._down = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._url = ""

    async def _serve(self) -> None:
        async with MockModel(self._script) as model:
            self._url = model.base_url
            self._up.set()
            while not self._down.is_set():
                await asyncio.sleep(0.01)

    def __enter__(self) -> str:
        self._thread.start()
        self._up.wait()
        return self._url

    def __exit__(self, *raised: object) -> None:
        self._down.set()
        self._thread.join()

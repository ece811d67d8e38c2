"""Someone who wants to exchange an artifact, beside someone who reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ocm_core.pipeline.locks import exchanging

LONG_ENOUGH = 0.3  # seconds in which a writer that need not wait would be done


class WaitingWriter:
    """Comes when `read` is called, and is done only after the whole reading."""

    def __init__(self, folder: Path) -> None:
        self.order: list[str] = []
        self._folder, self._thread = folder, Thread(target=self._exchange)

    def comes_at(self, patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        read: Callable[..., Any] = getattr(module, name)

        def while_one_waits(*arguments: Any) -> Any:
            self._thread.start()
            self._thread.join(LONG_ENOUGH)
            self.order.append(name)
            return read(*arguments)

        patch.setattr(module, name, while_one_waits)

    def ends(self) -> list[str]:
        """In which order things were done."""
        self._thread.join(10)
        return self.order

    def _exchange(self) -> None:
        with exchanging(self._folder):
            self.order.append("exchanged")

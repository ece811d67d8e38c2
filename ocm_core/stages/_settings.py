"""Settings that are null in experiments without the stage that reads them."""

from __future__ import annotations

from typing import TypeVar

Settings = TypeVar("Settings")


def given(settings: Settings | None) -> Settings:
    if settings is None:
        raise ValueError("the graph has this stage only where its settings are not null")
    return settings

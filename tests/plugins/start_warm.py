"""A pytest plug-in (`-p start_warm`) for a suite in a process of its own: its workers are forked, see warm_workers.py."""

from __future__ import annotations

from typing import Iterator

import pytest
from warm_workers import Server, Subprocess

from framework_compare.launch import supervised_worker


@pytest.fixture(scope="session", autouse=True)
def warm_workers() -> Iterator[None]:
    server = Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervised_worker, "subprocess", Subprocess(server))
        yield
    server.close()

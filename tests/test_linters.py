"""The code as ruff and mypy see it; pyproject.toml says what is asked of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_has_nothing_to_say(command: "list[str]") -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_hooks_run_the_version_that_the_tests_run() -> None:
    (pinned,) = re.findall(r"^    ruff == (\S+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert set(re.findall(r"ruff==([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text())) == {pinned}


def test_mypy_has_nothing_to_say_of_the_parent_side() -> None:
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

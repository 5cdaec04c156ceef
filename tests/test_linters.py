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


def mypy(*arguments: str, cwd: Path) -> str:
    """What mypy says; "" if nothing."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(ROOT / ".mypy_cache" / "linked"),
    ]
    done = subprocess.run([*command, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with the package as it is installed: mypy does not follow the folders that setup.cfg maps into it."""
    package = tmp_path / "framework_compare"
    package.mkdir()
    for part in (*(ROOT / "framework_compare").iterdir(), ROOT / "models", ROOT / "datasets"):
        (package / part.name).symlink_to(part)
    return tmp_path


def test_mypy_has_nothing_to_say_of_the_parent_side(linked: Path) -> None:
    assert not mypy("-p", "framework_compare", cwd=linked)


def test_a_wrong_keyword_is_an_error_of_the_type_checker(linked: Path) -> None:
    (linked / "right.py").write_text(
        "from framework_compare import compare\n"
        "compare('torch', ['alexnet', print], 'cpu', dataset='images', batch_size=[4, 8], epochs=3, repeats=2)\n"
    )
    assert not mypy("right.py", cwd=linked)
    for wrong in ("batchsize=4", "batch_size='4'", "repeats=None, rung={}"):
        (linked / "wrong.py").write_text(
            f"from framework_compare import compare\ncompare('torch', 'alexnet', {wrong})\n"
        )
        assert "wrong.py:2: error" in mypy("wrong.py", cwd=linked), wrong


def test_bounds_on_figures_of_real_frameworks_come_from_the_reference() -> None:
    """A bound by a number holds on the machine of who wrote it; tests/plugins/rounding_bounds.py gives others.

    Ops against torch are both in float64, where all that differs is the order of sums.
    """
    literal = re.compile(r"\b(?:rtol|atol|rel|abs)=\d|<=? ?\d*\.?\d*e-\d")
    for path in sorted((ROOT / "tests" / "real").glob("*.py")):
        lines = [line for line in path.read_text().splitlines() if literal.search(line)]
        assert not lines or path.name == "test_ops_against_torch.py", f"{path.name}: {lines}"

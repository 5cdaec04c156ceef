"""The code as ruff and mypy see it; pyproject.toml says what is asked of it."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from literal_bounds import literal_bounds

ROOT = Path(__file__).parents[1]


def test_ruff_has_nothing_to_say_and_hooks_run_its_version_that_the_tests_run() -> None:
    for command in (["check"], ["format", "--check"]):
        started = [sys.executable, "-m", "ruff", *command]
        done = subprocess.run(started, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (pinned,) = re.findall(r"^    ruff == (\S+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert set(re.findall(r"ruff==([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text())) == {pinned}


def mypy(*arguments: str, cwd: Path) -> str:
    """What mypy says; "" if nothing."""
    places = ("--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache" / "linked")
    command = [sys.executable, "-m", "mypy", *map(str, places), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with the package as it is installed: mypy does not follow the folders that setup.cfg maps into it."""
    package = tmp_path / "framework_compare"
    package.mkdir()
    mapped = (ROOT / name for name in ("adapters", "models", "datasets"))
    for part in (*(ROOT / "framework_compare").iterdir(), *mapped):
        (package / part.name).symlink_to(part)
    return tmp_path


RIGHT = [
    "duel('torch', 'jax', 'alexnet', 'images', blocks=4, batch_size=4, verify='off', out='f', retry=['failed']).passed",
    "bisect('jax', '0.9..0.10', 'alexnet', sample=3.0, batch_size=4, device='cpu', timeout_s=9.0).release",
    "reproduce('lerat2021', parts=['cpu'], repeats=1, budget='30min', threads=2).table()",
    "Request.of('torch', 'alexnet', dataset='images', batch_size=4, repeats=2, rungs=None).settings",
    "sweep(['torch'], ['alexnet'])",
]
WRONG = [
    "duel('torch', 'jax', 'alexnet', batchsize=4)",
    "duel('torch', 'jax', 'alexnet', budget='30min')",
    "bisect('jax', '0.9..0.10', 'alexnet', batchsize=4)",
    "reproduce('lerat2021', repeat=1)",
    "Request.of('torch', 'alexnet', batchsize=4)",
    "from framework_compare import compar",
]


def test_mypy_has_nothing_to_say_but_of_a_wrong_keyword(linked: Path) -> None:
    right = "'torch', ['alexnet', print], 'cpu', dataset='images', batch_size=[4, 8], epochs=3, repeats=2"
    wrong = ("batchsize=4", "batch_size='4'", "repeats=None, rung={}")
    rights = [f"compare({right})", *RIGHT]
    wrongs = [*(f"compare('torch', 'alexnet', {keywords})" for keywords in wrong), *WRONG]
    lines = ["from framework_compare import Request, bisect, compare, duel, reproduce, sweep", *rights, *wrongs]
    (linked / "calls.py").write_text("\n".join(lines) + "\n")
    said = mypy("-p", "framework_compare", "-m", "calls", cwd=linked)
    found = re.findall(r"^(\S+?):(\d+): error", said, re.MULTILINE)
    assert {file for file, _ in found} == {"calls.py"} and {lines[int(line) - 1] for _, line in found} == {*wrongs}, (
        said
    )


def test_few_types_are_left_open() -> None:
    """`Any` says nothing: adapters, whose frameworks have no types, need it. Names of json_types are as open, but say JSON."""
    files = [path for name in ("framework_compare", "models", "datasets") for path in (ROOT / name).rglob("*.py")]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    found = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    assert found["Any"] < 300 and sum(found[name] for name in ("JSON", "Document", "Fields")) < 650


def test_no_file_and_no_function_is_long() -> None:
    found = {}
    for name in ("framework_compare", "adapters", "datasets", "models"):
        for path in (ROOT / name).rglob("*.py"):
            text = path.read_text()
            found[str(path.relative_to(ROOT))] = len(text.splitlines()) <= 400
            for one in ast.walk(ast.parse(text)):
                if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    lines = (one.end_lineno or 0) - one.lineno + 1
                    found[f"{path.relative_to(ROOT)}: {one.name}, line {one.lineno}"] = lines <= 80
    assert not [what for what, short in found.items() if not short], "at most 400 lines of a file, 80 of a function"


def test_bounds_on_figures_come_from_a_yardstick() -> None:
    """A bound by a number holds on the machine of who wrote it; bounds.py and rounding_bounds.py of tests/plugins give others."""
    others = {*(ROOT / "tests").rglob("*.py")} - {Path(__file__)}  # its strings are examples of such bounds
    found = {str(path.relative_to(ROOT)): literal_bounds(path.read_text()) for path in others}
    assert not {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "line",
    [
        "assert_allclose(a, b, rtol=.01)",
        "assert a == approx(b, rel=1e-4)",
        "assert a == pytest.approx(b, 1e-4)",
        "assert np.allclose(a, b, 1e-3)",
        "assert math.isclose(a, b, rel_tol=+1e-9)",
        "assert_allclose(a, b, atol=2 * 1e-3 if wide else 0)",
        "tol = 1e-4",
        "self.tolerance = 3e-2",
        "bound = 1e-4\nassert_allclose(a, b, rtol=bound)",
        "def close(a, b, *, tol=1e-4): ...",
        "assert abs(a - b) < .5",
        "assert 0.1 >= np.abs(a / b - 1).max()",
        "assert error <= 1e-6",
        "PROGRAM = '''\n    assert np.allclose(a, b, rtol=1e-3)\n'''",
    ],
)
def test_a_literal_bound_is_seen_however_it_is_written(line: str) -> None:
    assert len(literal_bounds(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "assert_allclose(a, b, rtol=0, atol=allowed)",
        "assert a == approx(b)",
        "assert np.abs(a - b).max() <= TOLERANCE * yardstick",
        "assert share < 0.1",
        "train(learning_rate=1e-3, eps=1e-5)",
        "TEXT = '''\nno program: rtol=1e-3\n'''",
    ],
)
def test_what_is_no_literal_bound_is_none(line: str) -> None:
    assert literal_bounds(line) == []

"""Every command of the README and of docs/ runs with real frameworks, unless the page marks it as an example.

`<!-- example: WHY -->` above a block says why it is not run here.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, NamedTuple

import pytest

from framework_compare.datasets import fire_smoke
from framework_compare.paths import CACHE_VARIABLE, cache_dir

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- example: (?P<why>[^\n]+) -->\n)?```bash\n(?P<lines>.*?)^```", re.MULTILINE | re.DOTALL)
VERDICTS = {"check": (0, 1, 3), "duel": (0, 1, 3), "doctor": (0, 1)}  # exit codes that answer, beside 0
SHARED = ("envs", "parity", "index", "worker")  # of the cache; studies are each block's own
LIMIT_S = 3600  # of one command: cells that other programs disturb are measured again
NOT_INSTALLED = (".git", ".venv", "build", "examples")
MLP = """from torch import nn


def build():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
"""


class Block(NamedTuple):
    """The commands of one block of a page, and why they are an example only, or ""."""

    page: str
    number: int
    commands: List[str]
    why: str


def blocks(page: Path) -> "Iterator[Block]":
    for number, found in enumerate(BLOCK.finditer(page.read_text()), 1):
        lines = found["lines"].replace("\\\n", " ").splitlines()
        commands = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        yield Block(page.name, number, commands, found["why"] or "")


BLOCKS = [block for page in PAGES for block in blocks(page)]
RUN = [block for block in BLOCKS if not block.why]


def test_most_blocks_run_and_each_example_gives_its_reason():
    assert len(RUN) > len(BLOCKS) / 2
    text = "".join(page.read_text() for page in PAGES)
    assert text.count("```bash\n") == len(BLOCKS) and text.count("<!-- example: ") == len(BLOCKS) - len(RUN)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A real study that blocks name STUDY or latest: three frameworks, two batch sizes, with readings and profiles."""
    folder = tmp_path_factory.mktemp("named") / "STUDY"
    words = "--image-size 64 --batch-size 4,8 --epochs 2 --repeats 2 --retries-when-disturbed 0 --profile --yes --out"
    line = f"framework-compare run torch,tensorflow,jax alexnet {fire_smoke.tiny()} {words} {folder}"
    done = run(line, folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def place(study, tmp_path, monkeypatch) -> Path:
    """A folder with what commands name, and a cache whose only study, so the latest, is called main."""
    cache, here = tmp_path / "cache", tmp_path / "here"
    (cache / "studies").mkdir(parents=True)
    here.mkdir()
    for name in SHARED:
        if (cache_dir() / name).exists():
            (cache / name).symlink_to(cache_dir() / name)
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    shutil.copytree(study, cache / "studies" / "main")
    (here / "examples").symlink_to(ROOT / "examples")
    (here / "IMAGES").symlink_to(fire_smoke.tiny())
    (here / "study.toml").write_text(run("framework-compare show main --toml", here).stdout)
    (here / "my_net.py").write_text(tutorial_code())
    (here / "mlp.py").write_text(MLP)
    rows = [f"{','.join(str((3 * row + 7 * column) % 11) for column in range(8))},{row % 2}" for row in range(96)]
    (here / "diabetes.csv").write_text("\n".join(["Pregnancies,Glucose,BP,Skin,Insulin,BMI,DPF,Age,Outcome", *rows]))
    (here / "my-novel.txt").write_text("".join(f"The clock struck {hour}, and nobody spoke. " for hour in range(800)))
    return here


def tutorial_code() -> str:
    """The model of the tutorial."""
    (code,) = re.findall(
        r"```python\n(from torch import nn\n.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL
    )
    return code


def run(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command line as a shell does, with the programs first of the environment that the page made, else of this one."""
    path = f"{folder}/.venv/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        input="y\n",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{block.page}-{block.number}")
def test_the_commands_of_a_block_run(block, place, study):
    if "pip install ." in " ".join(block.commands):
        shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(*NOT_INSTALLED), dirs_exist_ok=True)
    if "--out STUDY" not in " ".join(block.commands):
        shutil.copytree(study, place / "STUDY")
    for command in block.commands:
        done = run(command.replace("sequences per second", "images per second"), place)  # STUDY has images here
        name = command.split()[1] if command.startswith("framework-compare ") else ""
        assert done.returncode in VERDICTS.get(name, (0,)), f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr and "Warning:" not in done.stderr, done.stderr[-2000:]

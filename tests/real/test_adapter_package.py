"""The package of examples/adapter_package as its user has it: both wheels in a new environment, then its README's commands."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from framework_compare.environments import uv_command

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "adapter_package"
CONFORMANCE = "framework_compare.conformance"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Runs a command of an environment that has both wheels and pytest, from a folder without any of their sources."""
    place = tmp_path_factory.mktemp("package")
    settings = {key: value for key, value in uv_command.read().environment().items() if key != "PYTHONPATH"}

    def uv(*words):
        subprocess.run([find_uv_bin(), *map(str, words), "--no-config", "--quiet"], check=True, env=settings)

    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(
            b"\0"
        )
    else:  # of a source distribution
        listed = (ROOT / "framework_compare.egg-info" / "SOURCES.txt").read_bytes().splitlines()
    for name in map(os.fsdecode, filter(None, listed)):  # no build folder of this checkout
        if (ROOT / name).is_file():
            (place / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place / "source" / name)
    for source in (place / "source", place / "source" / PACKAGE.relative_to(ROOT)):
        uv("build", "--wheel", "--out-dir", place / "wheels", source)
    uv("venv", "--python", sys.executable, place / "venv")
    python = place / "venv" / "bin" / "python"
    uv("pip", "install", "--python", python, *sorted((place / "wheels").glob("*.whl")), "pytest")
    (place / "empty").mkdir()

    def run(*words, check=0):
        done = subprocess.run(
            [str(place / "venv" / "bin" / words[0]), *map(str, words[1:])],
            cwd=place / "empty", env=settings, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == check, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    return run


pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not shutil.which("clang"), reason="tinygrad compiles with clang; install it to run this test"),
]


def test_it_is_listed_and_usable(installed):
    assert "tinygrad" in json.loads(installed("framework-compare", "list", "--json"))["frameworks"]
    installed("framework-compare", "env", "create", "tinygrad")
    found = json.loads(installed("framework-compare", "doctor", "--deep", "--json", "tinygrad"))["frameworks"]
    (entry,) = (one for one in found if one["framework"] == "tinygrad")
    assert entry["usable"] and entry["state"] == "ready", entry


def test_it_is_compared_with_pytorch(installed, tmp_path):
    asked = "--image-size 64 --limit 12 --epochs 3 --repeats 2 --verify require --sampling-hz 0".split()
    net = f"{ROOT / 'examples' / 'own_net.py'}:build"
    installed("framework-compare", "run", "torch,tinygrad", net, "fire-smoke-tiny", *asked, "--out", tmp_path / "study")
    shown = json.loads(installed("framework-compare", "show", tmp_path / "study", "--json"))
    cells = {cell["framework"]: cell for cell in shown["cells"]}
    assert cells["tinygrad"]["status"] == cells["torch"]["status"] == "ok", cells
    assert cells["tinygrad"]["parity_status"] == "passed", cells["tinygrad"]
    assert any({one["faster"], one["slower"]} == {"torch", "tinygrad"} for one in shown["verdicts"]), shown["verdicts"]


def test_it_passes_the_conformance_suite(installed):
    said = installed(*f"python -m pytest --pyargs {CONFORMANCE} --frameworks tinygrad -q -p no:cacheprovider".split())
    assert " passed" in said and " failed" not in said

"""The command line: what it prints, where, and its exit code; once of each kind in a process of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run, start
from typer.testing import CliRunner
from wheels import install

from framework_compare import registry
from framework_compare.cli import root
from framework_compare.errors import UsageError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.results.intervals import MIN_RUNS
from framework_compare.store.study_file import FILE, Store
from framework_compare.study.progress import PlainWatcher


def test_a_process_of_its_own_prints_what_this_one_does(tmp_path, own_cache, monkeypatch):
    assert start("--version").stdout.startswith("framework-compare 0.")
    request = ("run", "--frameworks", "caffe", "--models", "alexnet", "--out", tmp_path / "study")
    assert start(*request, check=2).stderr == run(*request, check=2).stderr
    cells = [Cell("torch", "alexnet", "日本", "cpu", TrainConfig())]
    Store.create(tmp_path / "study", settings={}, machine={}, cells=cells, repeats=1).close()
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "planned" in start("show", tmp_path / "study").stdout


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        (["torch,jax", "alexnet"], {"frameworks": ["torch", "jax"], "models": ["alexnet"]}),
        (["torch", "alexnet", "A", "B"], {"models": ["alexnet"], "dataset": ["A", "B"]}),
        (["torch", "my.py:build", "--epochs", "5"], {"models": ["my.py:build"], "epochs": 5}),
        (["--from", "study.toml", "--epochs", "5"], {"frameworks": ["jax"], "models": ["vgg16"], "epochs": 5}),
        (["study.toml", "--epochs", "5"], {"frameworks": ["jax"], "models": ["vgg16"], "epochs": 5}),
        (["torch", "vgg16", "--quiet"], {"frameworks": ["torch"], "models": ["vgg16"]}),
    ],
)
def test_a_run_is_asked_for_by_place_by_option_or_by_file(words, request_, monkeypatch, tmp_path):
    asked = {}

    def hear(request, folder, **given):
        asked.update({**vars(request), **request.settings, **given})
        raise UsageError("asked")

    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text('frameworks = ["jax"]\nmodels = ["vgg16"]\nepochs = 2\n')
    monkeypatch.setattr("framework_compare.api.run", hear)
    assert "asked" in run("run", *words, "--out", tmp_path / "study", check=2).stderr
    assert {name: asked[name] for name in request_} == request_
    assert (asked["dataset"] is not None) == ("dataset" in request_)
    assert isinstance(asked["watcher"], PlainWatcher) == ("--quiet" not in words)


def test_what_is_left_out_of_a_damaged_study_is_told_and_the_machine_named(tmp_path):
    cells = [Cell(name, "alexnet", "small", "cpu", TrainConfig()) for name in ("torch", "jax")]
    with Store.create(tmp_path / "study", settings={}, machine={}, cells=cells, repeats=1) as store:
        store._connection.execute("UPDATE run SET status = 'bogus' WHERE run_id = 1")
    for arguments in ([], ["--table", "time"], [shutil.copytree(tmp_path / "study", tmp_path / "copy")]):
        done = run("show", tmp_path / "study", *arguments)
        assert "1 row of table run left out (its status is 'bogus')" in done.stderr and "jax" in done.stdout.lower()
    done = run("export", tmp_path / "study", "--out", tmp_path / "out", "--format", "csv", check=1)
    assert "its status is 'bogus'" in done.stderr and "runs.csv" in done.stdout
    Store.create(tmp_path / "empty-study", settings={}, machine={"cpu": "A_processor"}, cells=[], repeats=1).close()
    assert run("show", tmp_path / "empty-study", "--style", "latex").stdout.startswith("% Measured on A_processor")
    assert run("show", tmp_path / "empty-study", "--style", "markdown").stdout.startswith("A_processor")
    assert "A_processor" not in run("show", tmp_path / "empty-study", "--style", "csv").stdout


def test_an_image_that_does_not_decode_is_named_or_skipped(images, tmp_path, own_cache):
    folder = tmp_path / "broken"
    subprocess.run(["cp", "-r", str(images), str(folder)], check=True)
    (folder / "fire" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    basics = ("run", "--frameworks", "torch", "--models", "alexnet", "--dataset", folder, "--out", tmp_path / "study")
    assert "bad.jpg" in run(*basics, check=2).stderr


def test_doctor_has_a_verdict_a_line_a_framework_and_device_and_the_machine(own_cache):
    verdict, *lines = run("doctor", "--device", "cpu,cuda:99").stdout.splitlines()
    frameworks = [*registry.FRAMEWORKS]
    ready = rf"0 of {len(frameworks)} frameworks ready on"
    assert re.match(rf"{ready} cpu, \d+ installed on first use; {ready} cuda:99; ", verdict)
    assert re.search(r"; (machine quiet|busy: timings will be unreliable)$", verdict)
    heads = [line.split("  ")[0].split(" not ")[0] for line in lines if not line.startswith(" ")]
    each = [title for name in frameworks for title in (name, f"{name} (cuda:99)")]
    assert heads == [*each, "machine", "cache", "load"]


def test_doctor_exits_with_1_where_no_framework_can_run_and_env_remove_needs_a_known_name(own_cache, tmp_path):
    missing = ("--frameworks", "torch", "--python", f"torch={tmp_path / 'gone'}")
    assert run("doctor", *missing, check=1).stdout.startswith("0 of 1 frameworks ready on cpu; ")
    run("doctor", "--frameworks", "tensorflow")
    run("doctor", "--frameworks", "tensorflow", "--strict", check=1)
    assert "unknown framework 'caffe'" in run("doctor", "--frameworks", "caffe", check=2).stderr
    assert "unknown framework 'caffe'" in run("env", "remove", "caffe", check=2).stderr
    assert "has no environment" in run("env", "remove", "torch").stdout
    assert "onnx has no environment" in run("env", "remove", "onnx").stdout


def test_list_says_of_each_study_what_it_holds(own_cache):
    cells = [Cell(name, "alexnet", "small", "cpu", TrainConfig()) for name in ("torch", "jax")]
    with Store.create(own_cache / "studies" / "mine", settings={}, machine={}, cells=cells, repeats=1) as store:
        store.record(1, Run("ok", started_at="2026-11-22T10:00:00+00:00"))
    (own_cache / "studies" / "broken").mkdir()
    (own_cache / "studies" / "broken" / FILE).write_text("no study")
    lines = run("list").stdout.splitlines()
    assert all(name in "\n".join(lines) for name in ("torch", "134,272,835", "fire-smoke-big"))
    line = next(line for line in lines if line.startswith("  mine "))
    assert re.sub(" +", " ", line) == (" mine 2026-11-22 10:00 1 of 2 cells ok PyTorch, JAX; AlexNet")
    assert any(line.startswith("  broken ") for line in lines)
    found = json.loads(run("list", "--json").stdout)
    broken, mine = found["studies"]
    assert (mine["name"], mine["ok"], mine["cells"], mine["models"]) == ("mine", 1, 2, ["alexnet"])
    assert broken["name"] == "broken" and set(broken) == {"name", "error"}
    assert {"name": "diabetes_ann", "dataset": "diabetes", "unit": "row"} in found["workloads"]
    assert {one["name"]: one["parameters"] for one in found["models"]}["vgg16"] == 134_272_835


@pytest.fixture
def quickstart(images, own_cache, monkeypatch):
    """Runs the quickstart with the test model on small images; its lines on standard output, and its exit code."""
    small = {
        **{"models": ["linear"], "dataset": str(images), "image_size": 32, "threads": 1, "loader_workers": 1},
        **{"limit": None, "repeats": 3},
    }
    monkeypatch.setattr(root, "QUICK", {**root.QUICK, **small, "batch_size": 1, "epochs": 4, "verify": "off"})

    def run(*frameworks):
        done = CliRunner().invoke(root.app, ["quickstart", "--frameworks", ",".join(frameworks)])
        return done.stdout.splitlines(), done.exit_code

    return run


def test_it_ends_with_the_answer_the_report_and_the_next_command(quickstart, paced, own_cache, one_width):
    lines, code = quickstart(paced("quick", pace_s=0.002), paced("slow", pace_s=0.006))
    answer, modes, report, following, said = lines[-5:]
    assert answer.startswith("Answer: linear: quick (eager)") and "faster than slow (eager) (not verified)" in answer
    assert " also have a compiled mode" in modes and said.startswith("This was a smoke test")
    page = next((own_cache / "studies").glob("*/report.html"))
    assert report == f"Report: {page}" and "quick" in page.read_text()
    assert following == f"Next:   {root.NEXT}" and code == 0


def test_the_quickstart_says_so_where_nothing_worked_but_can_name_a_winner(quickstart, tiny, monkeypatch):
    adapter = registry.FRAMEWORKS[tiny].trainer
    entry = registry.Framework("absent", adapter, "", "no_such_module", ((3, 8), (3, 99)))
    monkeypatch.setitem(registry.FRAMEWORKS, "absent", entry)
    lines, code = quickstart("absent")
    assert lines[-4] == "Answer: none; fewer than two frameworks finished: see `doctor`" and code == 1
    assert root.QUICK["repeats"] > MIN_RUNS
    assert all(name in registry.FRAMEWORKS for name in root.QUICK_FRAMEWORKS.split(","))


PLUGINS = Path(__file__).parent / "plugins"


def test_an_adapter_of_another_package_is_listed_and_diagnosed(tmp_path: Path) -> None:
    adapter = f"{PLUGINS / 'tiny.py'}:TinyTrainer"
    module = (
        "from framework_compare.registry import Framework\n"
        f"FRAMEWORK = Framework('theirs', {adapter!r}, '', 'numpy', ((3, 8), (3, 99)))\n"
    )
    install(tmp_path, "fc_other", module, "framework_compare.adapters", "other = fc_other:FRAMEWORK")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    imports = "from framework_compare.cli.listing import document; from framework_compare.doctor import examine"
    asked = "[*document(1)['frameworks']], [one.framework for one in examine(['other']).frameworks]"
    command = [sys.executable, "-c", f"import json; {imports}; print(json.dumps([{asked}]))"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    listed, examined = json.loads(done.stdout.splitlines()[-1])
    assert "other" in listed and "theirs" not in listed and examined == ["other"]

"""Studies of strangers: what they name is executed only for who asked for it or trusts it, and never by reading."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from drawn_study import study as drawn
from linear import build
from processes import write_script

from framework_compare import api, compare, resume
from framework_compare.errors import StudyError, UsageError
from framework_compare.graph import weights_size
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.report.kinds import KINDS
from framework_compare.samplers import host
from framework_compare.store.study_file import Store
from framework_compare.study.executors import PART, Executor
from framework_compare.study.part_run import run_part
from framework_compare.study.progress import Watcher

QUICK = dict(batch_size=4, epochs=1, threads=1, loader_workers=0, image_size=32, verify="off")


@pytest.fixture
def touching(tmp_path):
    """An interpreter that leaves a file wherever it is started, and that file."""
    trace = tmp_path / "was-executed"
    return write_script(tmp_path / "python", f'touch {trace}\nexec {sys.executable} "$@"'), trace


@pytest.fixture
def another_user(monkeypatch, tmp_path):
    """From now on it is another user's cache."""
    return lambda: monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path / "another's cache"))


@pytest.fixture
def study(tiny, images, own_cache, tmp_path, touching):
    """One with a run left to do, by an interpreter that it names; nothing was executed since."""

    def make(executor=None):
        python, trace = touching
        given = {"python": {tiny: str(python)}, "executor": executor, "out": tmp_path / "study"}
        folder = compare(tiny, "linear", dataset=images, **QUICK, **given).folder
        if executor is None:
            with Store.open(folder, readonly=False) as store:
                store.record(1, Run("interrupted"))
        trace.unlink(missing_ok=True)
        return folder

    return make


def test_a_strangers_study_names_the_interpreter_that_it_would_execute(study, another_user, touching):
    folder = study()
    assert list(resume(folder).frame.status) == ["ok"], "of one's own, without a question"
    touching[1].unlink()
    with Store.open(folder, readonly=False) as store:
        store.record(1, Run("interrupted"))
    another_user()
    python, trace = touching
    for call in (resume, api.verify_study):
        with pytest.raises(StudyError, match=f"would execute the interpreter '{python}'.* --trust"):
            call(folder)
    refused = run("resume", folder, check=2).stderr
    assert str(python) in refused and len(refused.splitlines()) == 1 and not trace.exists()
    with pytest.raises(UsageError, match="trust is 'yes'; allowed: True or False"):
        resume(folder, trust="yes")
    assert list(resume(folder, trust=True).frame.status) == ["ok"] and trace.exists()
    assert list(resume(folder).frame.status) == ["ok"], "trusted once"
    other = python.rename(python.with_name("other"))  # trust in one is not trust in another
    with Store.open(folder, readonly=False) as store:
        store.replace_settings({**store.settings(), "python": {"tiny": str(other)}})
        store.record(1, Run("interrupted"))
    with pytest.raises(StudyError, match=f"'{other}'"):
        resume(folder)


def test_an_interpreter_named_relative_to_a_folder_is_another_in_another_folder(tiny, own_cache, tmp_path, monkeypatch):
    from framework_compare.study import trust

    for name in ("mine", "theirs"):
        (tmp_path / name / "bin").mkdir(parents=True)
        write_script(tmp_path / name / "bin/python", "")
    monkeypatch.chdir(tmp_path / "mine")
    trust.note(trust.programs([], {"tiny": "bin/python"}))
    trust.check(tmp_path, trust.programs([], {"tiny": "bin/python"}), False)
    monkeypatch.chdir(tmp_path / "theirs")
    with pytest.raises(StudyError, match="theirs/bin/python"):
        trust.check(tmp_path, trust.programs([], {"tiny": "bin/python"}), False)


def test_a_strangers_part_names_the_interpreter_that_it_would_execute(study, another_user, touching, tmp_path):
    folder = study(Executor())
    another_user()
    python, trace = touching
    with pytest.raises(StudyError, match=f"would execute the interpreter '{python}'"):
        run_part(folder, 1, Watcher())
    assert str(python) in run("part", folder, 1, check=2).stderr and not trace.exists()
    run("part", folder, 1, "--trust")
    assert trace.exists() and (folder / "parts/1").is_dir()


def strangers_model(folder: Path, file: Path) -> Cell:
    """An imported model in a study's folder, said to be of a file, and the cell that trains it as written."""
    graph = build(image_size=32, name="net")
    model = ImportedModel.of("net", "net.py:build", {32: graph}, np.zeros(weights_size(graph), np.float32))
    written = {"kind": "file", "text": "net.py:build", "stem": "net", "name": "build", "path": str(file)}
    place = folder / "models" / model.name
    place.mkdir(parents=True)
    dataclasses.replace(model, written=written).write(str(place))
    return Cell("torch-as-written", model.name, "small", "cpu", TrainConfig(image_size=32, num_classes=3))


def test_a_strangers_study_names_the_model_file_that_it_would_execute(tiny, images, own_cache, tmp_path):
    file = tmp_path / "net.py"
    file.write_text(f"open({str(tmp_path / 'was-executed')!r}, 'w')\n")
    cell = strangers_model(tmp_path / "models-of-it", file)
    with Store.create(tmp_path / "study", settings={}, machine=host.describe(), cells=[cell], repeats=1):
        pass
    (tmp_path / "models-of-it/models").rename(tmp_path / "study/models")
    refused = pytest.raises(StudyError, match=f"would execute 'build' of the file '{file}'")
    with refused:
        resume(tmp_path / "study")
    with refused:  # whose models this process knows now
        compare(tiny, "linear", dataset=images, **QUICK, out=tmp_path / "study", extend=True)
    assert not (tmp_path / "was-executed").exists()


def test_modules_that_lie_in_a_study_are_not_imported(study):
    """Neither by a worker and what it starts, nor by a part under Slurm, which runs in the study's folder."""
    folder = study()
    (place,) = (folder / "runs").iterdir()
    for name in ("json", "numpy", "multiprocessing"):
        (place / f"{name}.py").write_text("raise SystemExit('imported')\n")
    assert list(resume(folder).frame.status) == ["ok"]
    assert not list(place.glob("*.py"))
    (folder / "typing.py").write_text("raise SystemExit('imported')\n")
    done = subprocess.run([sys.executable, "-c", PART, "part", "--help"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# A process that runs command lines and tells of each what it executed: other programs, code or libraries of a folder.
WATCHED = """
import json, sys
hostile, commands, seen = sys.argv[1], json.loads(sys.argv[2]), []
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.fork", "os.forkpty")
def hook(event, arguments):
    if event in STARTS:
        seen.append([event, repr(arguments)])
    elif event == "exec" and str(getattr(arguments[0], "co_filename", "")).startswith(hostile):
        seen.append([event, arguments[0].co_filename])
    elif event == "ctypes.dlopen" and hostile in str(arguments[0]):
        seen.append([event, arguments[0]])
sys.addaudithook(hook)
from framework_compare.cli import root
from framework_compare.report.page import report
report.WIDTHS = report.WIDTHS[:1]  # others differ in numbers alone
for words in commands:
    sys.argv[1:], code = words, 0
    try:
        root.main()
    except SystemExit as end:
        code = end.code or 0
    print("\\n" + json.dumps([code, seen]), file=sys.stderr)
    seen.clear()
"""
READING = [
    *(["show", "STUDY", "--table", kind] for kind in KINDS),
    *(["show", "STUDY", *more] for more in ([], ["BASELINE"], ["--json"])),
    *(["report", "STUDY", "--out", "report.html"], ["figure", "F2", "STUDY", "--out", "figure.svg"]),
    *(["export", "STUDY", "--out", "tables"], ["check", "STUDY", "--baseline", "BASELINE"]),
    *(["cost", "STUDY", "--per-hour", "1"], ["absorb", "STUDY"]),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder with a study that names an interpreter and a model file, has modules in it, and a baseline."""
    place = tmp_path_factory.mktemp("hostile")
    (place / "python").write_text("#!/bin/sh\n")
    (place / "net.py").write_text("raise SystemExit('imported')\n")
    for name, faster in (("STUDY", 1.0), ("BASELINE", 1.01)):
        drawn(place / name, models=("vgg16",), faster=faster)
    with Store.open(place / "STUDY", readonly=False) as store:
        store.replace_settings({**store.settings(), "python": {"torch": str(place / "python")}})
    strangers_model(place / "STUDY", place / "net.py")
    for module in ("json", "numpy", "typing"):
        (place / "STUDY" / f"{module}.py").write_text("raise SystemExit('imported')\n")
    return place


def watched(hostile, commands, code=WATCHED):
    """By command its exit code and what it executed."""
    words = [[str(hostile / word) if word in ("STUDY", "BASELINE") else word for word in one] for one in commands]
    start = [sys.executable, "-c", code, str(hostile), json.dumps(words)]
    done = subprocess.run(start, cwd=hostile, capture_output=True, text=True, timeout=300)
    found = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[")]
    assert len(found) == len(commands), done.stderr
    return {" ".join(one): tuple(each) for one, each in zip(commands, found)}


def test_reading_a_study_executes_nothing_and_the_watch_sees_what_is_executed(hostile):
    codes = {command[0]: int(command[0] == "check") for command in READING}  # a cell failed
    assert watched(hostile, READING) == {" ".join(command): (codes[command[0]], []) for command in READING}
    acts = "import os; os.system('true'); exec(compile('1', hostile + '/net.py', 'exec'))"
    found = watched(hostile, [["--version"]], WATCHED.replace("        root.main()", f"        {acts}"))
    assert [event for event, _ in found["--version"][1]] == ["os.system", "exec"]

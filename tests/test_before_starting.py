"""Before a measurement starts: how long it will take, what cannot run here, and the question whether to start."""

import json
import re
import shutil
import sys

import pytest
from command_line import run
from heard import Heard
from typer.testing import CliRunner

from framework_compare import bisection, compare, dry_run, resume, stability_sweep
from framework_compare.api import dry_resume
from framework_compare.cli import console
from framework_compare.cli.root import app
from framework_compare.errors import UsageError
from framework_compare.forecast import LACKING, Forecast
from framework_compare.results.timing_history import Range
from framework_compare.samplers import host
from framework_compare.study.executors import Executor

QUICK = {"batch_size": 4, "epochs": 1, "threads": 1, "loader_workers": 0, "image_size": 32, "sampling_hz": 0}
MEASURING = (
    *("quickstart", "run", "duel", "ladder", "largest-batch", "reproduce", "resume"),
    *("part", "verify", "fairness", "bisect", "peaks"),
)
READING = (
    *("absorb", "check", "cite", "cost", "doctor", "env", "export", "figure", "inspect", "list", "publish", "report"),
    *("show", "site", "validate"),
)
LONG_HELP = ("bisect", "run", "duel", "ladder", "largest-batch", "verify")


class Expecting(Heard):
    """Keeps forecasts, too, as they were when they were made."""

    def __init__(self):
        super().__init__()
        self.forecasts = []

    def expect(self, forecast):
        self.forecasts.append(forecast())


def test_every_command_is_known_as_one_that_measures_or_not():
    names = {one.name or one.callback.__name__ for one in app.registered_commands}
    names |= {one.name or one.typer_instance.info.name for one in app.registered_groups}
    assert names == {*MEASURING, *READING}


@pytest.mark.parametrize("command", MEASURING)
def test_every_command_that_measures_can_forecast_and_takes_the_answer_beforehand(command):
    done = CliRunner().invoke(app, [command, f"--help{'-all' * (command in LONG_HELP)}"], env={"COLUMNS": "200"})
    assert "--dry-run" in done.output and "--yes" in done.output


@pytest.mark.parametrize("framework", ["torch", "singa"])
def test_a_device_that_is_not_here_gets_no_time_but_a_reason(framework, own_cache):
    asked = dict(dataset="fire-smoke-tiny", repeats=2, **{**QUICK, "image_size": 64})
    result = dry_run(framework, "alexnet", ["cpu", "cuda:99"], **asked)
    here, lacking = result.cells
    assert (lacking.runs, lacking.basis) == (0, LACKING) and here.runs == result.runs == 2
    assert result.seconds == here.total_s and not any("cuda" in name for name in result.disk_bytes)
    assert "Cannot run here: device 'cuda:99': " in str(result)
    elsewhere = dry_run(framework, "alexnet", "cuda:99", executor=Executor(), **asked)
    assert elsewhere.runs == 2, "nodes have devices of their own"


@pytest.mark.parametrize(
    ("devices", "options", "code"), [("cpu,cuda:99", [], 0), ("cpu,cuda:99", ["--strict"], 1), ("cuda:99", [], 1)]
)
def test_a_forecast_of_what_cannot_run_here_fails(devices, options, code, own_cache):
    words = ["run", "torch", "alexnet", "fire-smoke-tiny", "--device", devices, "--dry-run", *options]
    assert "Cannot run here: device 'cuda:99': " in run(*words, check=code).stdout


@pytest.mark.parametrize(
    "words",
    [
        "largest-batch torch alexnet fire-smoke-tiny --batch-sizes 1,2",
        "duel torch mxnet mnist_cnn",
        "ladder torch mnist_cnn --rung a:batch_size=4",
        "reproduce colab-tiny-imagenet --part gpu",
        "verify torch,mxnet mnist_cnn",
    ],
)
def test_no_command_forecasts_what_no_device_here_can_run(words, own_cache):
    said = run(*words.split(), "--device", "cuda:99", "--dry-run", check=1)
    assert said.stdout.count("Cannot run here: device 'cuda:99': ") >= 1 and "about 0 minutes" in said.stdout
    assert not said.stderr.startswith("framework-compare:")


def test_nodes_need_a_slurm_job_and_a_check_needs_one_device_here(own_cache, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    said = run("run", "torch", "alexnet", "fire-smoke-tiny", "--nodes", 2, "--dry-run", check=1).stdout
    assert "Cannot run here: nodes is 2, but this is not a Slurm job; add --on slurm" in " ".join(said.split())
    said = run("verify", "torch", "mnist_cnn", "--device", "cpu,cuda:99", "--dry-run").stdout
    assert said.startswith("1 check. Nothing was started.") and "Cannot run here: device 'cuda:99': " in said
    monkeypatch.setattr(bisection, "_between", lambda base, versions, say: ("2.11.0", "2.12.0"))
    with pytest.raises(UsageError, match="^device 'cuda:99': "):
        bisection.dry_run("torch", "2.11.0..2.12.0", "mnist_cnn", device="cuda:99")


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("/etc/passwd", "the interpreter /etc/passwd is not an executable file"),
        (shutil.which("ls"), "does not run as Python"),
        (sys.executable, "lacks torch"),
    ],
)
def test_an_interpreter_that_cannot_serve_is_told_before_and_fails(python, said, own_cache, tmp_path):
    words = ["run", "torch", "alexnet", "fire-smoke-tiny", "--python", f"torch={python}", "--repeats", 1]
    forecast = run(*words, "--dry-run", check=1).stdout
    assert said in " ".join(forecast.split()) and "0 runs. Nothing was started." in forecast
    done = run(*words, "--out", tmp_path / "s", check=1)
    assert "not-installed" in done.stdout and said in " ".join(done.stdout.split())


def test_more_threads_than_cores_are_told(own_cache):
    cores, heard = host.available_cores(), Expecting()
    asked = dict(dataset="fire-smoke-tiny", watcher=heard)
    many, all_ = dry_run("torch", "alexnet", **asked, threads=[400 * cores, cores], loader_workers=0).cells
    said = [one for one in heard.said if one.startswith(("threads", "loader_workers"))]
    assert said[0].startswith(f"threads is {400 * cores}, but a run may use only {cores} cores")
    assert many.epoch_s == all_.epoch_s, "threads without a core add nothing"


@pytest.mark.parametrize(("search", "sizes"), [("steps", (2, 3, 8)), ("doubling", (2, 4, 8))])
def test_a_sweep_is_forecast_with_all_its_sizes(search, sizes, tiny, images, own_cache):
    asked = {**QUICK, "dataset": images, "batch_sizes": [2, 3, 8], "search": search}
    asked.pop("batch_size")
    result = stability_sweep.dry_run(tiny, "linear", **asked)
    assert isinstance(result, Forecast)
    assert tuple(one.cell.config.batch_size for one in result.cells) == sizes and result.runs == 3


def test_a_study_that_is_resumed_is_forecast_by_what_is_left(tiny, images, own_cache, tmp_path):
    heard, asked = Expecting(), dict(dataset=images, out=tmp_path / "s", repeats=3, **QUICK)
    study = compare(tiny, "linear", **asked, executor=Executor(), watcher=heard).folder
    assert [one.runs for one in heard.forecasts] == [3]
    assert dry_resume(study).runs == 3 and dry_resume(study).seconds.middle > 0
    done = resume(study, watcher=heard)
    assert heard.forecasts[1].runs == 3 and list(done.frame.runs_ok) == [3]
    assert dry_resume(study).runs == 0 and dry_resume(study, retry="ok").runs == 3
    assert "0 runs. Nothing was started." in run("resume", study, "--dry-run").stdout


def test_a_resume_may_be_quiet_and_have_another_interpreter(tiny, images, own_cache, tmp_path):
    study = compare(tiny, "linear", dataset=images, out=tmp_path / "s", **QUICK, executor=Executor()).folder
    said = run("resume", study, "--python", "tiny=/no/python", check=2).stderr
    assert "python of tiny is '/no/python', which does not exist" in said
    done = run("resume", study, "--quiet", "--json", "--python", f"tiny={sys.executable}")
    assert {cell["status"] for cell in json.loads(done.stdout)["cells"]} == {"ok"} and not done.stderr


@pytest.fixture
def terminal(monkeypatch):
    """A person at a terminal, who answers what is put in; questions that were asked."""
    asked = []

    def confirm(text, **options):
        asked.append(text)
        raise console.typer.Abort

    monkeypatch.setattr(console.typer, "confirm", confirm)
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    return asked


LONG, SHORT = Range(300, 601, 9000), Range(30, 599, 9000)


def test_more_than_ten_minutes_are_asked_for_where_somebody_can_answer(terminal, monkeypatch):
    for seconds, yes, questions in ((LONG, True, []), (SHORT, False, []), (LONG, False, ["Start?"])):
        monkeypatch.setattr(Forecast, "seconds", seconds)
        said = []
        try:
            console.announce([Forecast((), {})], said.append, yes)
        except console.typer.Abort:
            assert questions
        assert terminal == questions and said[0].startswith("0 runs, about 10 min (")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    console.announce([Forecast((), {})], lambda text: None, False)
    assert terminal == ["Start?"], "nobody was asked once more"


@pytest.mark.parametrize("command", ["run", "largest-batch"])
def test_what_is_not_wanted_makes_and_writes_nothing(command, own_cache, tmp_path, monkeypatch):
    def refuse(*_):
        raise console.typer.Abort

    monkeypatch.setattr(console, "announce", refuse)
    words = [command, "torch", "alexnet", "fire-smoke-big", "--out", tmp_path / "s"]
    assert run(*words, check=130).stderr.splitlines()[-1] == "framework-compare: stopped"
    assert not (tmp_path / "s").exists() and not (own_cache / "datasets").exists()


def test_a_data_set_is_made_once_it_is_wanted_and_not_for_a_folder_of_its_name(tiny, images, own_cache, tmp_path):
    shutil.copytree(images, tmp_path / "fire-smoke-big")
    asked = dict(dataset=tmp_path / "fire-smoke-big", out=tmp_path / "s", repeats=1)
    compare(tiny, "linear", **asked, **QUICK)
    assert not (own_cache / "datasets").exists()
    heard = Expecting()
    result = compare(
        tiny, "linear", dataset="fire-smoke-tiny", out=tmp_path / "made-s", repeats=1, watcher=heard, **QUICK
    )
    assert "data set fire-smoke-tiny" in heard.forecasts[0].disk_bytes
    assert list(result.frame.status) == ["ok"] and list(result.epochs.images) == [48]


BATCH = ["--threads", 400, "--batch-size", 1000000]


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
@pytest.mark.parametrize("command", ["verify", "fairness"])
def test_a_batch_that_no_memory_holds_is_refused(command, options, own_cache, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    said = run(command, "torch", "alexnet", *BATCH, *options, check=2).stderr
    assert re.fullmatch(
        r"framework-compare: batch_size is 1000000; one layer's output of alexnet would take [\d,]+ GiB, but this machine"
        r" has [\d.]+ GiB of memory: name a smaller batch or image\n",
        said,
    )
    assert not own_cache.exists() and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("command", "checks"), [("verify", [4]), ("fairness", [4, 2])])
def test_what_checks_take_is_told_and_none_is_started(command, checks, own_cache):
    cores = host.available_cores()
    execution = ["--execution", "default,compiled"] if command == "verify" else []
    models = "alexnet,vgg16" if command == "fairness" else "alexnet"
    said = run(command, "torch,jax", models, "--threads", 400 * cores, *execution, "--dry-run")
    assert f"threads is {400 * cores}, but a run may use only {cores} cores" in said.stderr
    assert "Nothing was started" in said.stdout and "Total: about" in said.stdout
    assert not own_cache.exists()

"""Wrong and hostile input at the command line: one sentence on one line, exit code 2, nothing started or written."""

import errno
import os
import shlex
import subprocess
import sys

import pytest
from command_line import run
from drawn_study import study
from stored_study import create

from framework_compare import dry_run, registry
from framework_compare.cli import console
from framework_compare.datasets import fire_smoke
from framework_compare.errors import UsageError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.results import bills
from framework_compare.store.folder import FILE

TINY = ("run", "torch", "alexnet", "fire-smoke-tiny")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return study(tmp_path_factory.mktemp("wrong") / "A").folder


@pytest.fixture
def no_images(monkeypatch):
    """Fails where images are read or rendered for a request that is refused anyway."""

    def refuse(*_, **__):
        raise AssertionError("images were read")

    monkeypatch.setattr("framework_compare.plan.data_of_models.resolve", refuse)


def refused(*words: object) -> str:
    """The one line that a command gives for its refusal."""
    done = run(*words, check=2)
    (line,) = done.stderr.splitlines()
    assert not done.stdout and line.isprintable()
    return line.removeprefix("framework-compare: ")


SIZES, SEEDS = (",".join(map(str, range(1, count))) for count in (401, 302))
# Options of a study of generated images -> how its refusal begins.
OPTIONS = {
    f"--seed {2**32}": "seed is 4294967296; allowed: a whole number of at least 0 and at most 4294967295",
    f"--repeats {10**9}": "repeats is 1000000000; allowed: a whole number of at least 1 and at most 1000",
    f"--epochs {10**12}": "epochs is 1000000000000; allowed: a whole number of at least 1 and at most 1000000",
    f"--warmup-steps {10**12}": "warmup_steps is 1000000000000; allowed: a whole number of at least 0 and at most",
    f"--nodes {10**9}": "nodes is 1000000000; allowed: a whole number of at least 1 and at most 1000000",
    f"--limit {10**12}": "limit is 1000000000000; allowed: a whole number of at least 1 and at most 1000000000, or",
    f"--retries-when-disturbed {10**9}": "retries_when_disturbed is 1000000000; allowed: a whole number of at least",
    f"--batch-size {SIZES} --seed {SEEDS}": "this makes 120,400 cells; allowed: at most 100,000; compare fewer values",
    f"--budget {10**9}d": "budget is '1000000000d'; allowed: a time such as",
    "--sample nan": "sample is 'nan'; allowed: a time such as",
    "--sampling-hz nan": "sampling_hz is nan; allowed: 0 (off), or 0.01 to 100",
    "--on-bad-image ignore": "unknown on_bad_image 'ignore'; allowed: fail, skip",
    "--sampling-hz 1e-300": "sampling_hz is 1e-300; allowed: 0 (off), or 0.01 to 100",
    "--memory-limit 1e99GiB": "memory_limit is '1e99GiB'; allowed: bytes, or a size such as 2GiB",
    "--timeout -1": "timeout_s is -1.0; allowed: a number of seconds above 0",
    "--learning-rate nan": "learning_rate is nan; allowed: a finite number of at least 0",
    "--momentum 1": "momentum is 1.0; allowed: a finite number of at least 0 and less than 1",
    "--batch-size x": "--batch-size: 'x' is not a comma-separated list of whole numbers",
    "--retry ''": "--retry is ''; allowed: statuses",
    "--python torch": "--python is 'torch'; allowed: FRAMEWORK=VALUE",
    "--models vgg16": "models are given twice: 'alexnet' and --models",
    "--index torch=notaurl": "--index: index of torch is 'notaurl'; allowed: a URL such as https://HOST/simple, a folder",
    "--out /dev/null": "/dev/null cannot be used for a study, because /dev/null is not a folder; name another folder",
    "--out /dev/null/study": "/dev/null/study cannot be used for a study, because /dev/null is not a folder",
    "--out /dev/null --dry-run": "/dev/null cannot be used for a study, because /dev/null is not a folder; name another",
    "--out /proc/x": "/proc/x cannot be used for a study, because /proc cannot contain files; name another folder",
    "--out /proc/x --dry-run": "/proc/x cannot be used for a study, because /proc cannot contain files; name another",
}


@pytest.mark.parametrize("options", OPTIONS)
def test_a_request_that_no_worker_could_run_is_refused_before_images_are_read(options, no_images, own_cache):
    assert refused(*TINY, *shlex.split(options)).startswith(OPTIONS[options])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere; run it as another user")
def test_a_folder_that_cannot_be_written_is_told_before_images_are_read(no_images, own_cache, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o500)
    assert "cannot be written; name another folder" in refused(*TINY, "--out", tmp_path / "mine" / "study")


def test_a_rung_is_checked_before_images_are_read(no_images, own_cache):
    unknown = "unknown setting of rung 'x' 'batchsize' (did you mean 'batch_size'?); allowed: "
    for rung, said in {
        "batchsize=1": unknown,
        "batch_size=abc": "batch_size is 'abc'; allowed: a whole number",
    }.items():
        assert refused("ladder", "torch", "alexnet", "--rung", f"x: {rung}").startswith(said)


@pytest.mark.parametrize("leads", ["nowhere", "itself"])
def test_a_link_that_leads_nowhere_holds_no_study(leads, no_images, own_cache, tmp_path):
    link = tmp_path / "itself"
    link.symlink_to(tmp_path / leads)
    for options in ([], ["--dry-run"]):
        said = refused(*TINY, "--out", link / "study", *options)
        assert said.startswith(f"{link / 'study'} cannot be used for a study, because {link} is a broken link; name an")
    assert [*tmp_path.iterdir()] == [link]


FILES = {
    'frameworks = "torch"': "e.toml names no models; add a line such as models = [...], or give them together with the file",
    'frameworks = "torch"\nmodels = 3': "model is 3; allowed: a name that `list` shows",
    'frameworks = "torch"\nmodels = "alexnet"\nrungs = {a = 3}': "rungs are {'a': 3}; allowed: settings by name",
    'frameworks = "torch"\nmodels = "alexnet"\nindex = {torch = 3}': "index of torch is '3'; allowed: a URL such as",
}


@pytest.mark.parametrize("text", FILES)
def test_a_file_with_values_of_another_kind_is_refused(text, no_images, own_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.toml").write_text(text)
    assert refused("run", "e.toml").startswith(FILES[text])


def of_no_text(path, kind):
    """What lies where a file is expected."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(kind)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("pipe", "it is not a regular file"),
        ("device", "it is not a regular file"),
        ("folder", "it is not a regular file"),
        (b'frameworks = "torch"\n' + b"#\n" * (1 << 19), "it has more than 1024 KiB"),
        (b"models = " + b"[" * 50_000 + b"]" * 50_000, "maximum recursion depth exceeded"),
        ("frameworks".encode("utf-16"), "'utf-8' codec can't decode byte"),
        (b'frameworks = "torch"\x00', "Expected newline"),
    ],
    ids=["pipe", "device", "folder", "huge", "deep", "utf-16", "nul"],
)
def test_what_is_no_text_of_a_study_is_refused(kind, said, no_images, own_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of_no_text(tmp_path / "e.toml", kind)
    assert refused("run", "e.toml").startswith(f"e.toml is not a study to run: {said}")


def test_what_a_file_lacks_may_be_given_beside_it(own_cache, tmp_path):
    (tmp_path / "e.toml").write_text('models = "alexnet"\ndataset = "fire-smoke-tiny"')
    assert "1 cell" in run("run", tmp_path / "e.toml", "--frameworks", "torch", "--dry-run").stdout


@pytest.mark.parametrize("made", [True, False])
def test_classes_that_are_no_list_are_refused_whether_or_not_images_are_there(made, own_cache, images):
    data = images if made else "fire-smoke-tiny"
    assert made or fire_smoke.unmade(data)
    with pytest.raises(UsageError, match="classes is 3; allowed: a list of class names, or None for all"):
        dry_run("torch", "alexnet", dataset=data, classes=3)


# A command -> how its refusal begins. DRAWN is a study with results, PLANNED and OTHER have none. HERE is their folder.
COMMANDS = {
    "run --frameworks caffe --models alexnet": "unknown framework 'caffe'; allowed: torch",
    "run --frameworks torhc --models alexnet": "unknown framework 'torhc' (did you mean 'torch'?); allowed: ",
    "run --frameworks torch": "no models are given; give --models, FRAMEWORKS MODELS without options, or FILE.toml",
    "run torch": "'torch' names frameworks, but no models are named; allowed: FRAMEWORKS MODELS [DATASET]..., or FILE.toml",
    "run torch lenet": "unknown model 'lenet' (did you mean 'alexnet'?); allowed: alexnet",
    "run torch alexnet /no/such": "data set folder '/no/such' does not exist",
    "run torch alexnet EMPTY": "data set folder 'EMPTY' is empty; give one with a folder of images per class, or data",
    "run study.toml alexnet": "'alexnet' cannot be combined with study.toml; give the file alone, with options",
    "run /no/such.toml": "/no/such.toml is not a study to run: ",
    "run a.toml --from b.toml": "the file is given twice: a.toml and --from; ",
    "show DRAWN --style ''": "unknown style ''; allowed: terminal, markdown",
    "show nothing": "nothing contains no study: there is no such folder; allowed: a study's folder, its name in the",
    "show EMPTY": "HERE/EMPTY contains no study: there is no study.sqlite in it",
    "show ''": "the study is named ''; allowed: a study's folder",
    "show PLANNED --table tiem": "unknown table 'tiem' (did you mean 'time'?); allowed: kinds, time",
    "show PLANNED OTHER --json": "--json and --toml print one whole study; received a second study",
    "show PLANNED --json --style csv": "--json and --toml print one whole study; received --style",
    "show PLANNED OTHER": "PLANNED and OTHER have no cell in common",
    "show PLANNED EMPTY/../PLANNED": "PLANNED and EMPTY/../PLANNED are the same study",
    "show DRAWN --style latex --label 'x}\\input{/etc/passwd}'": "the label is 'x}\\\\input{/etc/passwd}'; allowed: text",
    "show '\x1b[31mA\nB'": " [31mA B contains no study: there is no such folder",
    "report DRAWN --out x.pdf": "the report is 'x.pdf'; allowed: a file that ends in .html",
    "check DRAWN": "--baseline is missing; usage: framework-compare check [OPTIONS] [study]; `framework",
    "check latest --baseline latest": "latest and latest are the same study",
    "cost DRAWN --per-hour tpu=3": "unknown kind of device 'tpu'; allowed: cpu, cuda",
    "cost DRAWN --per-hour 1e308": "the price per_hour is 1e+308; allowed: a number of at least 0 and at",
    f"cost DRAWN --per-hour 1 --epochs {10**12}": "epochs is 1000000000000; allowed: a whole number of at",
    "cost PLANNED --per-kwh 0.3": "the study has no energy readings; give --per-hour (Energy not measured: ",
    "cost PLANNED": "no price is given; give per_hour, per_kwh or co2_g_per_kwh (--per-hour, --per-kwh, --co2-g-per-kwh)",
    "duel torch jax": "model is missing; usage: framework-compare duel [OPTIONS] {a} {b} {model} [data]; `",
    "duel torch jax alexnet --blocks 0": "blocks is 0; allowed: a whole number of at least 1",
    f"duel torch jax alexnet --blocks {10**9}": "blocks is 1000000000; allowed: a whole number of at l",
    "duel torch jax alexnet --max-slowdown nan --dry-run": "max_slowdown is 'nan'; allowed: a share",
    "env create ''": "no framework is given; at least one is needed",
    "env create torch --index torch=x": "--index: index of torch is 'x'; allowed: a URL such as",
    "doctor --frameworks ''": "no framework is given; at least one is needed",
    "inspect alexnet --num-classes 1": "num_classes is 1; allowed: a whole number of at least 2",
    "inspect alexnet --image-size 0": "image_size is 0; allowed: a whole number of at least 1",
    "export DRAWN --out DRAWN/study.sqlite": "HERE/DRAWN/study.sqlite cannot be used for an export, because ",
    "export DRAWN --out /proc/x": "/proc/x cannot be used for an export, because /proc cannot contain files; name another",
    "figure F1 DRAWN --out /proc/x/f.svg": "/proc/x/f.svg cannot be written, as /proc cannot contain files;",
    "figure latest F99": "unknown figure 'latest'; allowed: overview (F1), ",
    "figure F99 DRAWN": "unknown figure 'F99'; allowed: overview (F1), ",
    "figure F2 PLANNED --width 3mm": "the width is '3mm'; allowed: 21mm to 2117mm",
    "figure F2 PLANNED --width 1000000mm": "the width is '1000000mm'; allowed: 21mm to",
    "figure F2 PLANNED --view nope": 'unknown view of figure F2 \'nope\'; allowed: "seconds per epoch", "images per second"',
    "verify torch alexnet --keep /proc/x --dry-run": "/proc/x cannot be used for logs, because /proc cannot contain",
    f"verify torch alexnet --image-size {10**6}": "batch_size is 16; one layer's output of alexnet would take",
    f"fairness torch alexnet --steps {10**12} --dry-run": "steps is 1000000000000; allowed: a whole num",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_means_nothing_is_refused(command, drawn, own_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "DRAWN").symlink_to(drawn)
    for name, model in (("PLANNED", "alexnet"), ("OTHER", "vgg16")):
        for folder in (tmp_path, own_cache / "studies"):
            create(folder / name, [Cell("torch", model, "small", "cpu", TrainConfig())]).close()
    places = (tmp_path, own_cache / "studies")
    before = [sorted(place.iterdir()) for place in places]
    assert refused(*shlex.split(command)).startswith(COMMANDS[command].replace("HERE", str(tmp_path)))
    assert [sorted(place.iterdir()) for place in places] == before


def test_kinds_of_devices_that_have_a_price_are_those_that_are_known_and_the_file_of_a_study_names_it(drawn):
    assert set(bills.KINDS) == {registry.device_kind(device) for device in ("cpu", "cuda:1")}
    assert run("show", drawn / FILE, "--style", "csv").stdout == run("show", drawn, "--style", "csv").stdout


def test_a_working_folder_that_is_gone_is_told(own_cache, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert refused(*TINY[:3], "images", "--out", "s") == "the working folder no longer exists; change to another"


def test_output_that_cannot_be_written_is_one_line(drawn):
    command = [sys.executable, "-m", "framework_compare", "show", str(drawn)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    said = f"the output cannot be written: {os.strerror(errno.ENOSPC)}; free some space, or redirect it\n"
    assert done.stderr == f"framework-compare: {said}"


@pytest.mark.parametrize("stored", [True, False])
def test_a_stop_says_that_epochs_are_stored_only_where_some_are(stored, drawn, tmp_path):
    said = []
    watcher = type("Heard", (), {"say": lambda self, text: said.append(text)})()
    with pytest.raises(SystemExit), console.kept_on_interrupt(drawn if stored else tmp_path / "none", watcher):
        raise KeyboardInterrupt
    where = f"stopped; measured epochs are stored in {drawn}"
    assert said == [where if stored else "stopped before anything was measured"]

"""The doctor's states, each brought about for real; environments here are bare ones, made without an installer."""

import dataclasses
import json
import sys
import venv
from pathlib import Path

import jsonschema
import numpy
import pytest
from typer.testing import CliRunner

from framework_compare import doctor, registry
from framework_compare.cli import doctor as doctor_command
from framework_compare.cli.root import app
from framework_compare.environments import gpu_builds, installer, managed, venvs
from framework_compare.registry import Framework
from framework_compare.samplers import disturbance, host

ANY_PYTHON = ((3, 10), (3, 99))
TRAINER = """
import importlib
from framework_compare.protocol import Declared
ONE, BOTH = frozenset(("default", "fp32")), ("cpu", "cuda")
class T:
    by_device = dict.fromkeys(BOTH, ONE)
    declared = Declared(ONE, frozenset(("cross_entropy",)), frozenset(("sgd",)), by_device, by_device)
    environment = staticmethod(lambda config: {})
    def __init__(self, config):
        self.framework, self.config = importlib.import_module("IMPORTS"), config
    def unsupported(self):
        return f"device {self.config.device!r}: a build for CPUs" if self.config.device.startswith("CANNOT") else None
    version = lambda self: "1.0"
    settings = lambda self: {}
    release = lambda self: None
"""


def install_by_hand(plan: venvs.Plan, **options: object) -> None:
    """Instead of uv: an environment with tinyfw 1.0, and others whose import fails, aborts or never ends."""
    venv.create(plan.folder, with_pip=False, symlinks=True)
    site = venvs.site_packages(plan.folder)
    (site / "numpy.pth").write_text(str(Path(numpy.__file__).parents[1]))  # every worker needs it
    (site / "tinyfw.py").write_text("")
    (site / "brokenfw.py").write_text("raise RuntimeError('no such kernel')\n")
    (site / "deadfw.py").write_text("import os\nos.abort()\n")
    (site / "endlessfw.py").write_text("import signal\nsignal.pause()\n")
    (site / "tinyfw-1.0.dist-info").mkdir()
    (site / "tinyfw-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: tinyfw\nVersion: 1.0\n")


@pytest.fixture(autouse=True)
def cache(monkeypatch, own_cache) -> Path:
    monkeypatch.setattr(installer, "install", install_by_hand)
    monkeypatch.setattr(disturbance, "watch", lambda *_: QUIET)
    return own_cache


@pytest.fixture
def framework(monkeypatch, tmp_path):
    def register(imports: str = "tinyfw", *, python=ANY_PYTHON, cuda: str = "", cannot: str = "cuda") -> str:
        path, adapter = tmp_path / "tiny.txt", tmp_path / "tiny.py"
        path.write_text("tinyfw==1.0\n")
        adapter.write_text(TRAINER.replace("IMPORTS", imports).replace("CANNOT", cannot))
        entry = Framework("tiny", f"{adapter}:T", str(path), imports, python, cuda)
        monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
        return "tiny"

    return register


def diagnose(*, deep: bool = False, python: str | Path | None = None, device: str = "cpu") -> doctor.FrameworkCheck:
    pythons = {} if python is None else {"tiny": python}
    (found,) = doctor.examine(["tiny"], pythons=pythons, deep=deep, devices=[device]).frameworks
    assert found.device == device
    assert found.state in doctor.STATES
    assert bool(found.why) == bool(found.remedy) == (not found.usable)
    return found


def test_each_state_of_an_environment_is_found(framework, cache):
    framework()
    found = diagnose()
    assert (found.state, found.usable, found.why) == ("not made yet", False, "it does not exist yet")
    assert found.interpreter
    assert not cache.exists(), "the doctor only looks"
    environment = managed.ensure(framework())
    found = diagnose(deep=True)
    assert (found.state, found.usable) == ("ready", True)
    assert (found.version, found.python, found.size_bytes) == ("1.0", environment.python, environment.size_bytes)
    (venvs.site_packages(environment.folder) / "tinyfw.py").unlink()
    found = diagnose()
    assert (found.state, found.usable) == ("broken", False)
    assert "missing or changed" in found.why and "repaired" in found.remedy
    framework(python=((3, 98), (3, 99)))
    found = diagnose()
    assert (found.state, found.usable) == ("no interpreter", False)
    assert "3.98 to 3.99" in found.why and "--python tiny=" in found.remedy


@pytest.mark.parametrize(
    ("imports", "why"),
    [("brokenfw", "import brokenfw failed: RuntimeError: no such kernel"), ("deadfw", "was killed by SIGABRT")],
)
def test_a_deep_look_finds_an_import_that_fails(framework, imports, why):
    managed.ensure(framework(imports))
    assert diagnose().usable
    found = diagnose(deep=True)
    assert (found.state, found.usable) == ("broken", False)
    assert why in found.why


def test_a_deep_look_has_a_time_limit(framework, monkeypatch):
    managed.ensure(framework("endlessfw"))
    monkeypatch.setattr(doctor, "_IMPORT_TIMEOUT_S", 0)
    assert "it took longer than 0 s" in diagnose(deep=True).why


def test_an_external_interpreter_is_taken_as_it_is(framework, tmp_path):
    framework("pytest")
    found = diagnose(python=sys.executable, deep=True)
    assert (found.state, found.usable, found.version) == ("external", True, pytest.__version__)
    assert found.size_bytes is None
    framework()
    found = diagnose(python=tmp_path / "gone")
    assert (found.state, found.usable) == ("external", False)
    assert "does not exist" in found.why


@pytest.mark.parametrize("name", ["mxnet", "paddle", "torch"])
def test_precisions_that_no_gpu_has_run_are_noted(name):
    on_gpu, on_cpu = (doctor.check(registry.framework(name), device=device) for device in ("cuda", "cpu"))
    notes = [note for note in on_gpu.notes if "untested" in note]
    assert bool(notes) == (name != "torch")
    assert not notes or notes[0].startswith("fp32, tf32,")
    assert not any("untested" in note for note in on_cpu.notes)


def test_a_gpu_needs_requirements_and_a_device(framework, tmp_path):
    framework()
    found = diagnose(device="cuda")
    assert found.state == "unsupported" and "has no requirements for it" in found.why
    framework(cuda=str(tmp_path / "tiny.txt"))
    managed.ensure("tiny")
    found = diagnose(device="cuda:99")
    assert (found.state, found.usable) == ("unsupported", False)
    assert found.why.startswith("device 'cuda:99': ") and found.remedy
    assert diagnose().usable


def test_an_external_interpreter_is_unsupported_where_no_gpu_answers_unless_its_adapter_says_so(framework):
    framework("pytest")
    found = diagnose(python=sys.executable, device="cuda:99")
    assert (found.state, found.usable) == ("unsupported", False)
    assert found.why.startswith("device 'cuda:99': ") and found.version == pytest.__version__
    framework("pytest", cannot="nothing")
    assert not diagnose(python=sys.executable, device="cuda:99").usable
    found = diagnose(python=sys.executable, deep=True, device="cuda:99")
    assert (found.state, found.usable) == ("external", True)


@pytest.mark.parametrize("deep", [True, False], ids=["deep", "beside a GPU"])
def test_an_external_build_for_cpus_is_unsupported_on_a_gpu_as_its_adapter_says(framework, deep, monkeypatch):
    if not deep:  # without a GPU there would be nothing to ask
        monkeypatch.setattr(gpu_builds, "lack", lambda framework, device: None)
    framework("pytest")
    found = diagnose(python=sys.executable, deep=deep, device="cuda")
    assert (found.state, found.usable) == ("unsupported", False)
    assert found.why == "device 'cuda': a build for CPUs"
    assert diagnose(python=sys.executable, deep=True).usable


def test_a_deep_look_asks_the_adapter_and_finds_one_that_does_not_start(framework):
    managed.ensure(framework(cannot="cpu"))
    assert diagnose().state == "ready"
    found = diagnose(deep=True)
    assert (found.state, found.why) == ("unsupported", "device 'cpu': a build for CPUs")
    managed.ensure(framework())
    adapter = Path(registry.framework("tiny").trainer.rpartition(":")[0])
    adapter.write_text(adapter.read_text().replace("self.framework", "this_is_no_name.framework"))
    found = diagnose(deep=True)
    assert (found.state, found.usable) == ("broken", False)
    assert "its adapter does not start there: failed: NameError" in found.why


def test_all_frameworks_and_the_machine_are_examined_by_default(tmp_path, cache):
    diagnosis = doctor.examine(pythons={"pytorch": tmp_path / "gone"})
    assert [one.framework for one in diagnosis.frameworks] == list(registry.FRAMEWORKS)
    assert diagnosis.frameworks[0].state == "external"
    machine = doctor.machine()
    assert machine.cores >= 1 and machine.ram_bytes > 0 and machine.cache_free_bytes >= 0
    assert machine.cache == cache


def test_clocks_and_swap_are_noted_where_they_make_times_vary(cache):
    steady = doctor.Machine(2, 10**9, cache, 10**9, None, "performance", False, 10**6)
    assert doctor_command.clock_notes(steady) == []
    assert doctor_command.clock_notes(doctor.Machine(2, 10**9, cache, 10**9, None)) == []
    text = " ".join(doctor_command.clock_notes(dataclasses.replace(steady, governor="powersave", turbo=True)))
    assert "frequency governor is powersave" in text and "turbo" in text
    (swapped,) = doctor_command.clock_notes(dataclasses.replace(steady, swap_used_bytes=2 * 10**9))
    assert "2.0 GB of memory are swapped to disk" in swapped


def test_turbo_is_read_as_each_driver_tells_it(tmp_path):
    tells = {("cpufreq/boost", "1"): True, ("intel_pstate/no_turbo", "1"): False, ("intel_pstate/no_turbo", "0"): True}
    for number, ((file, text), expected) in enumerate(tells.items()):
        (tmp_path / f"{number}" / file).parent.mkdir(parents=True)
        (tmp_path / f"{number}" / file).write_text(f"{text}\n")
        assert host.turbo(str(tmp_path / f"{number}")) is expected and host.turbo(str(tmp_path / "none")) is None


SCHEMA = json.loads(Path(doctor_command.__file__).with_name("doctor.schema.json").read_text())
QUIET, BUSY = (
    disturbance.Load(0.02, 0.0, 2, ()),
    disturbance.Load(0.93, 0.0, 2, (disturbance.BusyProcess(7, "python", 0.93),)),
)


def test_the_verdict_is_one_line(cache):
    for states, gpus, load, line in (
        (["ready", "ready"], None, QUIET, "2 of 2 frameworks ready on cpu; no NVIDIA GPU; machine quiet"),
        (
            ["ready", "not made yet", "broken"],
            ("H100",),
            BUSY,
            "1 of 3 frameworks ready on cpu, 1 installed on first use; 1 GPU; busy: timings will be unreliable",
        ),
    ):
        checks = tuple(doctor.FrameworkCheck(f"fw{n}", state == "ready", state) for n, state in enumerate(states))
        machine = doctor.Machine(2, 10**9, cache, 10**9, gpus)
        assert doctor_command.verdict(doctor.Diagnosis(machine, checks), load) == line


@pytest.mark.parametrize("options", [[], ["--device", "cuda:99"]], ids=["ready", "without the device"])
def test_json_is_all_of_it_and_keeps_the_exit_code(framework, options, cache):
    managed.ensure(framework())
    runner, words = CliRunner(), ["doctor", "--frameworks", "tiny", *options]
    plain, done = runner.invoke(app, words), runner.invoke(app, [*words, "--json"])
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    (check,) = found["frameworks"]
    assert done.exit_code == plain.exit_code == (0 if check["usable"] else 1)
    assert check["framework"] == "tiny" and (check["state"] == "ready") == (not options)
    assert found["machine"]["cache"] == str(cache) and "frameworks ready on" in found["verdict"]


def test_its_schema_is_a_schema_with_every_state():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    check = SCHEMA["properties"]["frameworks"]["items"]["properties"]
    assert check["state"]["enum"] == list(doctor.STATES)
    assert {field.name for field in dataclasses.fields(doctor.FrameworkCheck)} <= set(check)

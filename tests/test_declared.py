"""What an adapter does not declare is refused before its framework is imported, and never measured as something else."""

import dataclasses
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest
from linear import build
from reference_adapter import write_adapter

from framework_compare import registry
from framework_compare.adapters import flax, jax, keras, lightning, mxnet, paddle, singa, tensorflow, torch
from framework_compare.conformance.trial import entry_of
from framework_compare.doctor import Interpreter
from framework_compare.environments import venvs
from framework_compare.errors import Unsupported, UsageError
from framework_compare.graph import OPS, Field, Graph, Node, Task, weights_size
from framework_compare.launch import staging
from framework_compare.launch.jobs import run_job
from framework_compare.launch.limits import Limits
from framework_compare.plan.planning import build_graph
from framework_compare.protocol import EXECUTIONS, PRECISIONS, Declared, Job, TrainConfig
from framework_compare.records import Run
from framework_compare.registry import Framework
from framework_compare.worker.conformance_answers import ConformanceAnswers
from framework_compare.worker.parity_answers import ParityAnswers
from framework_compare.worker.refusal import ASKS, fault_of, refuse_undeclared
from framework_compare.worker.runner import Runner

PLUGINS = Path(__file__).parent / "plugins"
ANY_PYTHON = ((3, 8), (3, 99))
PLAIN = (
    torch.TorchTrainer,
    tensorflow.TensorFlowTrainer,
    mxnet.MXNetTrainer,
    paddle.PaddleTrainer,
    jax.JaxTrainer,
    singa.SingaTrainer,
)
KERAS = (keras.KerasTensorFlowTrainer, keras.KerasJaxTrainer, keras.KerasTorchTrainer)
TRAINERS = (*PLAIN, *KERAS)
OURS = {trainer.name: trainer for trainer in TRAINERS}
CPU_ONLY = {"singa", *(trainer.name for trainer in KERAS)}
PLUGGED = {"tiny": "TinyTrainer", "faulty": "FaultyTrainer", "reference": "ReferenceTrainer"}
STRANGE = "no-such-thing"
# By field of Declared: what is changed in a job to ask for something that nobody declares.
UNDECLARED: Dict[str, Dict[str, Any]] = {
    **{"ops": {"op": STRANGE}, "losses": {"loss": STRANGE}, "optimizers": {"optimizer": STRANGE}},
    **{"executions": {"execution": STRANGE}, "precisions": {"precision": STRANGE}, "internals": {"internals": STRANGE}},
    "gpu_threads": {"gpu_threads": STRANGE},
}


@pytest.fixture
def adapters(tmp_path: Path) -> Dict[str, Framework]:
    """All adapters of the package and those of the tests, by name; this Python runs them, which has no framework."""
    paths = {name: PLUGINS / f"{name}.py" for name in ("tiny", "faulty")}
    paths["reference"] = write_adapter(tmp_path / "reference")
    own = {name: Framework(name, f"{path}:{PLUGGED[name]}", "", "numpy", ANY_PYTHON) for name, path in paths.items()}
    return {**{name: registry.FRAMEWORKS[name] for name in OURS}, **own}


@pytest.fixture
def job(tmp_path: Path):
    """Makes the job of a cell: the linear model, with an op in front of it where one is given, and settings changed."""

    def make(op: str = "", **changed: Any) -> Job:
        np.save(tmp_path / "weights.npy", np.zeros(weights_size(linear()), np.float32))
        listed = {"classes": ["a", "b", "c"], "paths": [], "labels": [], "formats": []}
        (tmp_path / "images.json").write_text(json.dumps(listed))
        return Job(
            TrainConfig(**{"pipeline": "memory", "image_size": 8, **changed}),
            graph=linear(op).to_dict(),
            images=str(tmp_path / "images.json"),
            weights=str(tmp_path / "weights.npy"),
        )

    return make


@pytest.fixture
def trainer_of(monkeypatch: pytest.MonkeyPatch):
    """Finds the class of an adapter in this process: its framework is imported only where a trainer is made."""

    def find(entry: Framework) -> Any:
        if entry.name in OURS:
            return OURS[entry.name]
        path = registry.source_path(entry.trainer)
        spec = importlib.util.spec_from_file_location(entry.name, path / "__init__.py" if path.is_dir() else path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, entry.name, module)
        spec.loader.exec_module(module)
        return getattr(module, PLUGGED[entry.name])

    return find


@pytest.fixture
def work(tmp_path: Path, own_cache: Path, job: Any):
    """Runs a cell of an adapter in a worker of this Python: how it ended, and the phases that the worker began."""

    def run(entry: Framework, **changed: Any) -> "tuple[Run, list[str]]":
        here = Interpreter(Path(sys.executable), managed=False)
        done = run_job(entry, here, job(**changed), tmp_path / "run", limits=Limits(timeout_s=60))
        return done, [phase.name for phase in done.phases if phase.name != "spawn"]

    return run


def linear(op: str = "") -> Graph:
    graph = build(image_size=8)
    return dataclasses.replace(graph, nodes=(Node("strange", op, ("input",), {}), *graph.nodes)) if op else graph


class Events(list):
    """The events that a worker would send."""

    def send(self, event: str, **fields: Any) -> None:
        self.append((event, fields))


@pytest.mark.parametrize("field", UNDECLARED)
@pytest.mark.parametrize("name", [*OURS, *PLUGGED])
def test_what_is_not_declared_is_refused_before_anything_is_imported(name, field, adapters, job, trainer_of):
    trainer, asked, events = trainer_of(adapters[name]), job(**UNDECLARED[field]), Events()
    with pytest.raises(Unsupported) as refused:
        Runner(asked, trainer, events).run()
    assert f"{name} declares no {ASKS[field].noun} {STRANGE!r}" in str(refused.value)
    assert "; declared: " in str(refused.value)
    assert events == []


@pytest.mark.parametrize("answers", [ParityAnswers, ConformanceAnswers])
@pytest.mark.parametrize("field", UNDECLARED)
def test_questions_are_refused_as_cells_are(answers, field, adapters, job, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where small answers are written
    cell, events = job(**UNDECLARED[field]), Events()
    asked = dataclasses.replace(cell, tasks=({"ask": "build", "graph": cell.graph, "weights": cell.weights},))
    with pytest.raises(Unsupported, match=f"torch declares no {ASKS[field].noun} {STRANGE!r}"):
        answers(asked, torch.TorchTrainer, events).run()
    assert events == []


@pytest.mark.parametrize(
    ("name", "asked", "words"),  # what each refuses is tested above
    [
        (
            "torch",
            {"execution": "graph"},
            "execution 'graph' on device 'cpu'; declared: compiled, default, eager, max-autotune",
        ),
        ("tiny", {"device": "cuda:1"}, "device 'cuda:1'; declared: cpu"),
    ],
)
def test_a_refused_cell_is_unsupported_and_the_reason_names_the_device_where_that_matters(
    name, asked, words, adapters, work
):
    run, phases = work(adapters[name], **asked)
    assert (run.status, phases, run.epochs) == ("unsupported", [], ())
    assert run.reason == f"{name} declares no {words}"


def test_every_field_that_an_adapter_fills_can_be_refused():
    filled = {field for trainer in OURS.values() for field in Declared._fields if getattr(trainer.declared, field)}
    apart = {"replicas", "several_nodes", "several_inputs", "why"}  # tests/test_replicas.py, and below
    assert filled - apart - {"untested"} <= set(ASKS) and set(ASKS) == {*UNDECLARED, "updates", "generation"}


def test_several_inputs_and_generation_are_refused_where_they_are_not_declared():
    fields = Field("a", (4,)), Field("b", (4,))
    task = Task(fields, Field("label", (), "int64"), 4, "cross_entropy")
    graph = Graph("two", task, (Node("sum", "Add", ("a", "b"), {}),))
    lacking = type("Lacking", (OURS["torch"],), {"declared": OURS["torch"].declared._replace(several_inputs=False)})
    with pytest.raises(Unsupported, match="torch declares no models of several inputs; two has 2"):
        refuse_undeclared(lacking, TrainConfig(), [graph])
    refuse_undeclared(OURS["torch"], TrainConfig(), [graph])
    asked, words = TrainConfig(mode="generation"), "declares no mode 'generation' in execution"
    generating = [one for one in (*TRAINERS, flax.FlaxTrainer, lightning.LightningTrainer) if one.declared.generation]
    for trainer in {*TRAINERS, flax.FlaxTrainer} - {*generating}:
        with pytest.raises(Unsupported, match=f"{trainer.name} {words} 'default'; declared: none; choose ") as refusal:
            refuse_undeclared(trainer, asked, [])
        advised = str(refusal.value).partition("; choose ")[2].partition(", which")[0]
        assert set(re.split(", | or ", advised)) == {one.name for one in generating}
    for trainer in generating:
        refuse_undeclared(trainer, asked, [])
    with pytest.raises(Unsupported, match=f"torch {words} 'compiled'; declared: default, eager$"):
        refuse_undeclared(torch.TorchTrainer, TrainConfig(mode="generation", execution="compiled"), [])


def test_updates_that_an_adapter_does_not_know_are_refused(adapters, job, trainer_of):
    for settings, names in (
        ({"clip_norm": 1.0}, "update setting 'clip_norm'"),
        ({"ramp_updates": 5, "accumulation": 2}, "update settings 'schedule', 'accumulation'"),
    ):
        for name in ("singa", "tiny"):
            events = Events()
            with pytest.raises(Unsupported, match=f"{name} declares no {names}.*; declared: none"):
                Runner(job(**settings), trainer_of(adapters[name]), events).run()
            assert events == []


@pytest.mark.parametrize("trainer", [tensorflow.TensorFlowTrainer, jax.JaxTrainer])
def test_fast_math_is_a_flag_of_xla_on_a_cpu(trainer):
    fast = trainer.environment(TrainConfig(execution="fast-math"))
    flags = fast.pop("XLA_FLAGS")
    assert flags == "--xla_cpu_enable_fast_math=true"
    assert fast == trainer.environment(TrainConfig(execution="compiled"))
    assert "fast-math" not in trainer.declared.executions["cuda"]


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_a_cell_of_an_untested_precision_has_a_warning(precision, adapters, job, trainer_of, monkeypatch):
    monkeypatch.setattr(Runner, "_train", lambda self: None)
    both = {"cpu": frozenset({"fp32", "tf32"})}
    tiny = trainer_of(adapters["tiny"])
    monkeypatch.setattr(
        tiny, "declared", tiny.declared._replace(precisions=both, untested={"cpu": frozenset({"tf32"})})
    )
    events = Events()
    Runner(job(precision=precision), tiny, events).run()
    said = [fields["message"] for event, fields in events if event == "warning"]
    assert said == ["tf32 on a CPU: untested, because this adapter has not run like this yet"] * (precision == "tf32")


@pytest.mark.parametrize(("setting", "declared"), [("internals", "public"), ("gpu_threads", "shared")])
def test_what_is_private_is_refused_where_nothing_private_is_there(setting, declared, job):
    with pytest.raises(Unsupported, match=f"torch declares no {setting} 'private'; declared: {declared}$"):
        Runner(job(**{setting: "private"}), torch.TorchTrainer, Events()).run()


def test_private_threads_are_tensorflows_and_smoothed_labels_a_loss_of_their_own():
    on_gpu = TrainConfig(device="cuda", gpu_threads="private")
    assert tensorflow.TensorFlowTrainer.environment(on_gpu)["TF_GPU_THREAD_MODE"] == "gpu_private"
    assert "TF_GPU_THREAD_MODE" not in tensorflow.TensorFlowTrainer.environment(TrainConfig(device="cuda"))
    smoothed = build_graph("alexnet", TrainConfig(label_smoothing=0.1))
    with pytest.raises(Unsupported, match="singa declares no loss 'smoothed cross_entropy'; declared: cross_entropy"):
        refuse_undeclared(OURS["singa"], TrainConfig(), [smoothed])
    for name in set(OURS) - {"singa"}:
        assert {"smoothed cross_entropy", "smoothed token_cross_entropy"} <= OURS[name].declared.losses


def test_singa_refuses_what_its_wheel_lacks(adapters, job, trainer_of):
    for asked, words in (
        ({"execution": "graph"}, "'graph' on device 'cpu': its graph mode ends the process at the first BatchNorm"),
        ({"execution": "compiled"}, "'compiled' on device 'cpu': it has no compiler; declared: default, eager"),
        ({"precision": "bf16"}, "'bf16' on device 'cpu': its arithmetic on a CPU is in float32 alone; declared: fp32"),
        ({"device": "cuda"}, "device 'cuda'; declared: cpu"),
        ({"optimizer": "adam"}, "'adam': its only optimizer that is repaired and proved is SGD; declared: sgd"),
        ({"loss": "mse"}, "loss 'mse'; declared: cross_entropy"),
        ({"op": "LSTM"}, "op 'LSTM'; declared: AdaptiveAvgPool2d, "),
        ({"mode": "inference"}, "no inference: only the training of the published study is proved"),
    ):
        with pytest.raises(Unsupported, match=re.escape(words)):
            Runner(job(**asked), trainer_of(adapters["singa"]), Events()).run()


IMAGE_OPS = {
    node.op
    for name in ("alexnet", "mobilenet_v2", "resnet50", "vgg16")
    for node in build_graph(name, TrainConfig()).nodes
}


@pytest.mark.parametrize("name", OURS)
def test_ours_declare_what_cells_can_ask_for(name):
    declared = OURS[name].declared
    assert fault_of(declared) == ""
    # SINGA is for the published study: its adapter has what those models are made of
    if name.startswith("keras-"):  # layers of Keras; it has no primitives
        assert set(OPS) > declared.ops > IMAGE_OPS
    else:
        assert declared.ops == (IMAGE_OPS | {"AdaptiveAvgPool2d", "Reshape"} if name == "singa" else set(OPS))
    assert all(names <= declared.precisions[kind] for kind, names in declared.untested.items())
    for by_kind, known in ((declared.executions, EXECUTIONS), (declared.precisions, PRECISIONS)):
        assert set(by_kind) == ({"cpu"} if name in CPU_ONLY else {"cpu", "cuda"})
        assert all(names <= set(known) for names in by_kind.values())
    assert all("default" in names for names in declared.executions.values())
    assert all("fp32" in names for names in declared.precisions.values())


@pytest.mark.parametrize(
    "line, words",
    [
        ("pass", "T.declared is missing; add to the class what it implements: declared = "),
        ("declared = {'ops': ['Linear']}", "T.declared is a dict; add to the class what it implements"),
        ("declared = Declared(frozenset(), 'sgd', frozenset(), {}, {})", "T.declared has losses = 'sgd'"),
        ("declared = Declared(*[frozenset()] * 5)", "T.declared has executions of type frozenset, expected a mapping"),
        ("declared = Declared(*[frozenset()] * 3, {'cpu': ['eager']}, {})", "has executions['cpu'] = ['eager']"),
    ],
)
def test_an_adapter_that_declares_nothing_fails_and_is_told_what_to_add(line, words, tmp_path, work):
    path = tmp_path / "third.py"
    path.write_text(
        "from framework_compare.protocol import Declared\n"
        f"class T:\n    {line}\n    environment = staticmethod(lambda config: {{}})\n"
    )
    run, phases = work(Framework("third", f"{path}:T", "", "numpy", ANY_PYTHON))
    assert (run.status, phases) == ("failed", [])
    assert words in run.reason


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adapter in a folder, as a third party may have it: the class Third, which trains as tiny does."""
    folder = tmp_path / "third"
    folder.mkdir()
    (folder / "__init__.py").write_text("from .trainer import Third\n")
    (folder / "requirements.txt").write_text("numpy==2.0.0\n")
    tiny = (PLUGINS / "tiny.py").read_text().replace("class TinyTrainer", "class Third").replace('"tiny"', '"third"')
    (folder / "trainer.py").write_text(tiny)
    return folder


def test_an_adapter_may_be_a_folder_of_its_own_for_studies_and_the_conformance_suite(folder, work, monkeypatch):
    entry = Framework("third", f"{folder}:Third", "requirements.txt", "numpy", ANY_PYTHON)
    assert venvs.requirements_path(entry) == folder / "requirements.txt"
    staged = staging.stage(entry) / "framework_compare/adapters"
    assert {path.name for path in staged.iterdir()} == {"__init__.py", "common", "third"}
    assert {path.name for path in (staged / "third").iterdir()} == {"__init__.py", "trainer.py"}
    run, phases = work(entry, loss=STRANGE)
    assert run.reason == f"third declares no loss {STRANGE!r}; declared: cross_entropy"
    monkeypatch.setattr(registry, "FRAMEWORKS", dict(registry.FRAMEWORKS))
    entry = entry_of(f"{folder}:Third")
    assert (entry.name, entry.requirements) == ("third", str(folder / "requirements.txt"))
    assert registry.source_path(entry.trainer) == folder


@pytest.mark.parametrize("place", ["no_such_package.adapter", "no/such/file.py", "json.decoder.nothing", "sqlite3/x"])
def test_an_adapter_that_is_not_there_is_a_usage_error(place):
    with pytest.raises(UsageError, match="is not a file; allowed: the name of a module or a package"):
        registry.source_path(Framework("third", f"{place}:Third", "", "numpy", ANY_PYTHON).trainer)


def test_no_adapter_may_be_called_as_what_all_share(tmp_path, own_cache):
    (tmp_path / "common.py").write_text("class T: pass\n")
    with pytest.raises(UsageError, match="rename it"):
        staging.stage(Framework("mine", f"{tmp_path / 'common.py'}:T", "", "numpy", ANY_PYTHON))

"""Two replicas on a CPU in each framework's own engine: the function, proved; mistakes, caught; a rank's death, told."""

import psutil
import pytest
from changed_adapter import changed
from nightly import some_nightly

from framework_compare import compare, registry
from framework_compare.parity.verify import ParityChecker, Where
from framework_compare.protocol import TrainConfig

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle", "jax")
SMALL = dict(batch_size=2, image_size=32, threads=1, loader_workers=1, repeats=1, verify="off")


@pytest.fixture
def climb(tmp_path, references, monkeypatch, small):
    """The levels of a framework on two devices, its adapter changed or as it is."""

    def levels(name: str, *change: str, execution: str = "default"):
        environment = Where().environment(name, print)
        if change:
            monkeypatch.setitem(registry.FRAMEWORKS, name, changed(name, tmp_path / name, *change))
        # with BatchNorm, XLA's variance of a batch is not float32's (docs/records/fairness-findings.md)
        model, image_size = ("alexnet", 64) if execution == "compiled" else (small, 32)
        quick = dict(device="cpu:0,1", threads=1, loader_workers=0, pipeline="memory")
        config = TrainConfig(**quick, image_size=image_size, execution=execution)
        return ParityChecker(tmp_path, {name: environment}).network(name, model, config)

    return levels


CASES = [
    *((name, "default") for name in FRAMEWORKS),
    ("mxnet", "graph"),
    ("paddle", "graph"),
    ("tensorflow", "compiled"),
]


@pytest.mark.parametrize("case", some_nightly(CASES, nightly=CASES[1:]), ids="-".join)
def test_two_replicas_train_the_mean_of_their_gradients(climb, case):
    framework, execution = case
    found = climb(framework, execution=execution)
    assert found.status == "passed", "\n".join(map(str, [found.reason, *found.levels]))
    assert "BatchNorm of each replica's own batch" in found.settings["replicas"]


SYNCHRONISED = (
    "network.py",
    "mean, variance, count = exact.mean(axes), exact.var(axes), x.size // a[\"channels\"]",
    "count, average = x.size // a[\"channels\"], lambda value: self.jax.lax.pmean(value, \"data\")\n"
    "            mean = average(exact.mean(axes))\n"
    "            variance = average((exact * exact).mean(axes)) - mean * mean",
)  # fmt: skip
# By framework and mistake: file, text and what it becomes, the first level that fails.
MISTAKES = {
    ("torch", "gradient times N"): ("trainer.py", "else loss).backward()", "else 2 * loss).backward()", 2),
    ("torch", "loss divided twice"): ("trainer.py", "else loss).backward()", "else loss / 2).backward()", 2),
    ("torch", "gradients not averaged"): (
        "trainer.py", "self._group.wrap(self._network, captured=self._captures)", "self._network", 2,
    ),
    ("jax", "synchronised BatchNorm"): (*SYNCHRONISED, 1),
    ("jax", "gradient times N"): ("replicas.py", "lax.pmean(values, DATA)", "lax.psum(values, DATA)", 2),
    ("jax", "loss divided twice"): (
        "replicas.py", "self.jax.lax.pmean(values, DATA)", "[v / 2 for v in self.jax.lax.pmean(values, DATA)[1:]]", 2,
    ),
    ("tensorflow", "gradient times N"): ("replicas.py", "ReduceOp.MEAN, tensors", "ReduceOp.SUM, tensors", 2),
    ("tensorflow", "loss divided twice"): (
        "replicas.py", "ReduceOp.MEAN, tensors)", "ReduceOp.MEAN, [tensor / 2 for tensor in tensors])", 2,
    ),
    ("paddle", "gradient times N"): ("trainer.py", "else share).backward()", "else 2 * share).backward()", 2),
    ("paddle", "loss divided twice"): ("trainer.py", "else share).backward()", "else share / 2).backward()", 2),
    ("mxnet", "gradient times N"): ("trainer.py", ".step(divisor)", ".step(divisor // 2)", 3),
    ("mxnet", "loss divided twice"): ("trainer.py", ".step(divisor)", ".step(2 * divisor)", 3),
    ("mxnet", "weights undone by the kvstore"): ("replicas.py", "update_on_kvstore=False", "update_on_kvstore=True", 3),
    ("mxnet", "statistics of context 0 everywhere"): (
        "trainer.py", "parameter.data(self._context)", "parameter.data(self._contexts[-1])", 3,
    ),
}  # fmt: skip
DAILY = [("mxnet", "weights undone by the kvstore")]


@pytest.mark.parametrize("mistake", some_nightly(MISTAKES, {*MISTAKES} - {*DAILY}), ids="-".join)
def test_a_mistake_in_an_adapter_is_caught(climb, mistake):
    *change, level = MISTAKES[mistake]
    found = climb(mistake[0], *change)
    failed = [one for one in found.levels if not one.passed]
    assert level in [one.number for one in failed], (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_cell_counts_the_images_of_both(framework, images, small):
    """13 images: one global batch of 12 is three of 4; the last image cannot be shared."""
    asked = {**SMALL, "sampling_hz": 100}  # epochs are short
    study = compare(framework, small, "cpu:0,1", dataset=images, epochs=2, pipeline="native", **asked)
    row = study.frame.iloc[0]
    assert row.status == "ok", row.reason
    assert list(study.epochs.images)[:2] == [12, 12]
    assert row.threads_max >= 2 and row.threads == 1


def test_singa_says_why_it_has_no_replicas(images, small):
    row = compare("singa", small, "cpu:0,1", dataset=images, **SMALL).frame.iloc[0]
    assert row.status == "unsupported" and "its DistOpt needs a build with CUDA and NCCL" in row.reason


def kill_rank(number: int) -> None:
    ranks = [p for p in psutil.Process().children(recursive=True) if p.environ().get("RANK") == str(number)]
    assert len(ranks) == 1, ranks
    ranks[0].kill()


@pytest.mark.parametrize("framework", some_nightly(["torch", "paddle"], nightly=["paddle"]))
def test_a_rank_that_is_killed_is_told_by_its_number(framework, images, small):
    """Rank 0 then fails, too, as its connection is gone: that is not what is told."""
    killed = []

    def kill_in_epoch(event):
        if event["event"] == "epoch" and not killed:
            kill_rank(1)
            killed.append(event)

    class Watch:
        def __enter__(self):
            return self

        def __exit__(self, *exception):
            """Nothing to close."""

        def __getattr__(self, name):
            return lambda *given, **named: kill_in_epoch(given[1]) if name == "event" else None

    settings = {**SMALL, "epochs": 2000, "pipeline": "memory"}
    study = compare(framework, small, "cpu:0,1", dataset=images, watcher=Watch(), **settings)
    row = study.frame.iloc[0]
    assert killed and row.status == "crashed"
    assert row.reason.startswith("rank 1: killed by SIGKILL in phase epochs"), row.reason

"""The conformance suite passes a correct adapter, and of a broken one fails what is broken, with its sentence."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from network_mistakes import SUMMED
from nightly import some_nightly
from pipeline_mistakes import ALWAYS_HORIZONTAL
from reference_adapter import write_adapter

from framework_compare.paths import CACHE_VARIABLE

PLUGINS = Path(__file__).parent / "plugins"
SUITE = ("-p", "no:cacheprovider", "--pyargs", "framework_compare.conformance")


@pytest.fixture
def conform(pytester, own_cache, monkeypatch):
    """Runs the suite on an adapter of the float32 reference with the methods given; what failed, by test name.

    Its workers are forked from an interpreter that has started: plugins/warm_workers.py.
    """
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS))

    def run(body: str = "", *options: str, least: int = 40) -> "dict[str, str]":
        report = pytester.path / "report.xml"
        given = ("--frameworks", write_mine(pytester.path, "mine", body), f"--junitxml={report}", *options)
        pytester.runpytest_subprocess("-p", "warm_workers", *SUITE, *given, timeout=300)
        return failures(report, "mine", least)

    return run


def write_mine(folder: Path, name: str, body: str) -> str:
    """The float32 reference with the methods given, as an adapter of its own; what --framework takes for it."""
    write_adapter(folder / name, f"class Mine(ReferenceTrainer):\n    name = {name!r}\n{body}")
    return f"{name}:Mine"


def failures(report: Path, adapter: str, least: int) -> "dict[str, str]":
    """What failed of an adapter's tests, of which more than `least` were asked, by test name."""
    cases = [case for case in ElementTree.parse(report).iter("testcase") if adapter in case.attrib["name"]]
    assert len(cases) > least
    failed = [(case, fault) for case in cases for kind in ("failure", "error") for fault in case.iter(kind)]
    return {case.attrib["name"].partition("[")[0]: fault.attrib["message"] for case, fault in failed}


# Left out: the crops of hundreds of images, whose judges have tests of their own; networks that test_op_mutations.py has.
FAST = ("-k", "not test_level or plain or windows or (level_4 and still)")
ONE_NETWORK = "(not test_level or windows)"


@pytest.mark.parametrize("which", [FAST, pytest.param((), marks=pytest.mark.nightly)], ids=["fast", "all"])
def test_a_correct_adapter_passes(conform, which):
    assert conform("", *which) == {}


FIRST = ("-k", "test_protocol or declares or test_a_cell_trains or test_steps")


@pytest.mark.parametrize("which", [FIRST, pytest.param((), marks=pytest.mark.nightly)], ids=["first", "all"])
def test_the_adapter_that_authors_are_told_to_read_passes(pytester, own_cache, monkeypatch, which):
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS))
    given = ("--frameworks", f"{PLUGINS / 'tiny.py'}:TinyTrainer", "--junitxml=report.xml", *which)
    pytester.runpytest_subprocess("-p", "warm_workers", *SUITE, *given, timeout=300)
    assert failures(pytester.path / "report.xml", "tiny", 15) == {}


def test_a_method_that_every_run_calls_is_missed(conform):
    body = "    device_times = None"
    check_sentences(
        conform(body, "-k", "test_has_every_method", least=0),
        {"test_has_every_method": "device_times(): it is missing"},
    )


def declaring(ops: str, **fields: str) -> str:
    """The reference with these ops, in an expression in which `every` has all of its own, and other fields likewise."""
    given = {"ops": f"frozenset({ops})", **fields}
    changed = ", ".join(f"{name}={words}" for name, words in given.items())
    return f"\n    every = ReferenceTrainer.declared.ops\n    declared = ReferenceTrainer.declared._replace({changed})"


LITTLE = {
    "no ReLU6": 'every - {"ReLU6"}',
    "no BatchNorm2d": 'every - {"ReLU6", "BatchNorm2d", "Dropout"}',
    "two ops": '{"Flatten", "Linear"}',
}


OF_ANY_OPS = ["test_starts", "test_gradients", "test_build_again_replaces", "test_one_compute_thread"]
OF_ANY_OPS += ["test_a_cell_trains"]


@pytest.mark.parametrize("ops", some_nightly(LITTLE, {"no ReLU6", "no BatchNorm2d"}))
def test_an_adapter_of_few_ops_passes_on_networks_of_these(conform, pytester, ops):
    asked = "test_level and not level_4 or " + " or ".join(OF_ANY_OPS)
    assert conform(declaring(LITTLE[ops]), "-k", asked, least=len(OF_ANY_OPS)) == {}
    cases = {case.attrib["name"]: case for case in ElementTree.parse(pytester.path / "report.xml").iter("testcase")}
    for name in OF_ANY_OPS:
        assert cases[f"{name}[mine]"].find("skipped") is None, name


WRONG_VARIANCE = """
    def weights(self):
        return {name: a * 1.01 if name.endswith("running_var") else a for name, a in super().weights().items()}
"""


FEW = declaring('{"Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d", "GlobalAvgPool", "Linear"}')


@pytest.mark.nightly
def test_a_correct_adapter_of_few_ops_with_batchnorm_passes(conform):
    assert conform(FEW, "-k", "test_level and not level_4", least=30) == {}


def test_batchnorm_is_checked_where_few_ops_are_declared(report):
    assert "stem_bn.running_var" in failures(report, "fewnorm", 30)["test_level"]


TOO_LITTLE = {
    "no Linear": (declaring('every - {"Linear"}'), "op 'Linear'"),
    "no way to a vector": (declaring('{"Conv2d", "Linear"}'), "op 'Flatten' or 'GlobalAvgPool'"),
    "no loss": (declaring("every", losses='frozenset({"mse"})'), "loss 'cross_entropy'"),
    "no optimizer": (declaring("every", optimizers='frozenset({"adam"})'), "optimizer 'sgd'"),
}


@pytest.mark.parametrize("which", some_nightly(TOO_LITTLE, {"no way to a vector", "no loss", "no optimizer"}))
def test_an_adapter_that_declares_too_little_fails_one_test_and_no_worker_trains(conform, which):
    body, words = TOO_LITTLE[which]
    check_sentences(conform(body, "-k", "not level_4"), {"test_declares_the_least": f"`declared` has no {words}"})


MISTAKES = {
    "a linear layer's weights as (in, out)": (
        """
    def weights(self):
        return {name: a.T.copy() if a.ndim == 2 else a for name, a in super().weights().items()}
""",
        {"test_level": ".weight: ["},
    ),
    "momentum kept on load": (
        """
    def load_weights(self, weights):
        if self.oracle is None:
            return super().load_weights(weights)
        self.oracle.weights = {name: array.copy() for name, array in weights.items()}
""",
        {
            "test_load_weights_zeroes_the_momentum": "the momentum must be zeroed",
            "test_level": "it keeps momentum from earlier steps",
        },
    ),
    "the last batch dropped": (
        """
    def epoch(self, pipeline, number):
        return (batch for batch in super(Mine, self).epoch(pipeline, number) if batch.size == self.config.batch_size)
""",
        {
            "test_native_has_every_image_once": "expected each exactly once, and a last batch of the remaining ones",
            "test_native_has_every_image_once_without_loader_workers": "has 8 of 11 images",
        },
    ),
    "another compute thread": (
        """
    def train_step(self, batch):
        import threading
        if not hasattr(self, "stepping"):
            self.stepping = threading.Event()
            threading.Thread(target=self.compute, daemon=True).start()
        self.stepping.set()
        loss = super().train_step(batch)
        self.stepping.clear()
        return loss

    def compute(self):
        matrix = numpy.ones((500, 500))
        while self.stepping.wait():
            matrix @ matrix
""",
        {"test_one_compute_thread": "with config.threads=1 the worker's threads wanted"},
    ),
    "a process that stays": (
        """
    def build(self, graph):
        import subprocess
        super().build(graph)
        subprocess.Popen(["sleep", "600"])
""",
        {"test_no_other_process_is_left": "(sleep 600), expected none"},
    ),
    "a loader process that stays": (
        """
    def open_pipeline(self, images):
        import subprocess
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        return super().open_pipeline(images)
""",
        {"test_release_ends_loader_processes": "still exist 5 s after release()"},
    ),
    "a loss that is summed": (SUMMED, {"test_level": "level 2 (gradient of every parameter) fails"}),
    "no reason why not": (
        """
    declared = ReferenceTrainer.declared._replace(
        executions=dict.fromkeys(("cpu", "cuda"), frozenset(("default",))),
        precisions=dict.fromkeys(("cpu", "cuda"), frozenset(("fp32",))),
    )

    def unsupported(self):
        return "" if self.config.device != "cpu" else None
""",
        {"test_a_device_that_is_not_there_is_unsupported": "unsupported() must return a sentence"},
    ),
    "a release that needs a network": (
        "    def release(self): self.oracle.weights.clear()\n",
        {"test_a_network_that_cannot_be_built_is_a_row": "release() must work after a build() that raised"},
    ),
    "unreadable images left out": (
        """
    def epoch(self, pipeline, number):
        try:
            yield from super().epoch(pipeline, number)
        except Exception:
            print("never mind")
""",
        {"test_an_image_that_cannot_be_read_is_a_row": "the loader's error must reach epoch()"},
    ),
    "a step that changes its batch": (
        """
    def train_step(self, batch):
        loss = super().train_step(batch)
        batch.images[...] *= 0.5
        return loss
""",
        {
            "test_shared_batches_arrive_unchanged": "neither to_device_batch() nor train_step() may change or reuse them",
            "test_memory_batch_stays_as_it_is": "train_step() may not change its batch",
            "test_a_small_network_trained_as_cells_train": "level 3 fails: as a cell trains, with held batches",
        },
    ),
    "weights that are no copies": (
        "    def weights(self): return dict(self.oracle.weights)\n",
        {"test_weights_are_copies": "of the arrays that weights() had returned, expected copies"},
    ),
    "a seed that is not used": (
        """
    def train_step(self, batch):
        import os
        drops = any(node.op == "Dropout" for node in self.graph.nodes)
        return super().train_step(batch) + (os.getpid() % 100 if drops else 0)
""",
        {"test_the_same_seed_has_the_same_losses": "__init__() must seed the generators"},
    ),
    "nothing declared": (
        """
    declared = None
""",
        {"test_declares_what_it_implements": "`declared` is missing; add to the class what it implements: declared ="},
    ),
    "everything declared": (
        """
    class Everything(frozenset):
        def __contains__(self, name):
            return True

    declared = ReferenceTrainer.declared._replace(ops=Everything(ReferenceTrainer.declared.ops))
""",
        {"test_an_undeclared_op_is_unsupported": "`declared` may hold only what the adapter implements"},
    ),
    "a method that takes too little": (
        "    def forward(self, batch): return super().forward(batch)\n",
        {"test_has_every_method": "forward(): it takes (self, batch), the protocol's takes (self, batch, training)"},
    ),
}


SOUND = "test_memory_batch_stays_as_it_is", "test_weights_are_copies"  # one of them, whatever the mistake


# One of each kind; test_a_mistake_fails_no_other_test asks the others for their own tests, too.
DAILY = "a linear layer's weights as (in, out)", "the last batch dropped", "another compute thread", "nothing declared"
ADAPTERS = {mistake: f"mistake{number:02}" for number, mistake in enumerate(DAILY)}


DECLINED = """
    def open_pipeline(self, images):
        from framework_compare.errors import Unsupported
        if self.config.flip == "vertical":
            raise Unsupported("flip: no 'vertical' here")
        return super().open_pipeline(images)
"""

# Adapters of the same suite whose failures are not by the name of a test: what is asked of them.
ASIDE = {
    "fewnorm": (FEW + WRONG_VARIANCE, "test_level and not level_4"),
    "flipped": (ALWAYS_HORIZONTAL, "level_4 and upside-down"),
    "declined": (DECLINED, "level_4 and (upside-down or not-flipped)"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of one suite on adapters with a mistake each, which is asked for that mistake's own tests and the SOUND ones."""
    folder = tmp_path_factory.mktemp("mistakes")
    given, asked = [], []
    for mistake, name in ADAPTERS.items():
        body, wanted = MISTAKES[mistake]
        given += ["--frameworks", write_mine(folder, name, body)]
        asked.append(f"({name} and ({' or '.join({*wanted, *SOUND})}) and {ONE_NETWORK})")
    for name, (body, words) in ASIDE.items():
        given += ["--frameworks", write_mine(folder, name, body)]
        asked.append(f"({name} and {words})")
    environment = {**os.environ, "PYTHONPATH": str(PLUGINS), CACHE_VARIABLE: str(folder / "cache")}
    command = [sys.executable, "-m", "pytest", "-p", "warm_workers", *SUITE, *given, "-k", " or ".join(asked)]
    subprocess.run([*command, "--junitxml=report.xml"], cwd=folder, env=environment, capture_output=True, timeout=600)
    return folder / "report.xml"


@pytest.mark.parametrize("mistake", DAILY)
def test_a_mistake_fails_its_own_test_with_a_sentence(report, mistake):
    wanted = MISTAKES[mistake][1]
    check_sentences(failures(report, ADAPTERS[mistake], len(wanted)), wanted)


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_fails_no_other_test(conform, mistake):
    body, wanted = MISTAKES[mistake]
    check_sentences(conform(body, "-k", "not setting and not level_4"), wanted)


def check_sentences(found, wanted):
    """The tests that failed, with what they said, are those that are wanted, with words of theirs."""
    assert set(found) == set(wanted), found
    for name, words in wanted.items():
        assert words in found[name], found[name]


def test_a_mistake_of_the_pipeline_fails_level_4_with_a_sentence(report):
    """Level 4 itself has more of them in test_pipeline_judges.py."""
    (said,) = failures(report, "flipped", 0).values()
    assert "are mirrored left to right; expected with crop='none' and flip='vertical'" in said


def test_a_part_of_level_4_that_an_adapter_declines_is_skipped_with_its_reason(report):
    assert failures(report, "declined", 1) == {}
    cases = [case for case in ElementTree.parse(report).iter("testcase") if "declined" in case.attrib["name"]]
    said = [case.find("skipped") for case in cases]
    assert [why is not None and "no 'vertical' here" in why.attrib["message"] for why in said] == [True, False]

"""The ladder holds for a framework that is the reference in float32, and catches each seeded mistake at its level."""

from __future__ import annotations

import dataclasses
import sys

import pytest
from nightly import some_nightly

from framework_compare import registry
from framework_compare.errors import UsageError
from framework_compare.parity import verify as ladder
from framework_compare.parity.network import surgery
from framework_compare.parity.network.ladder import TOLERANCE
from framework_compare.results import verdicts
from framework_compare.results.parity import Level

CLASS = """

class Mutated(ReferenceTrainer):
{body}
"""
NOTHING = "    name = 'mutated'\n"


@pytest.fixture
def mutate(register_mutated, references, monkeypatch):
    """Registers the framework `mutated`: the float32 reference, with the methods given, and the model `small`."""
    monkeypatch.setitem(registry.MODELS, "small", registry.Model("small:build"))
    return lambda body=NOTHING: register_mutated(CLASS.format(body=body))


def climb(**settings):
    settings.setdefault("threads", 1)
    (found,) = ladder.verify(
        ["mutated"], ["small"], image_size=32, where=ladder.Where(python={"mutated": sys.executable}), **settings
    )
    return found


def test_the_reference_in_float32_passes_every_level(mutate):
    mutate()
    found = climb()
    assert (found.status, found.highest, found.diverges) == ("passed", 5, "")
    assert [level.number for level in found.levels] == [0, 1, 2, 3, 4, 5]


def change(op: str, which: int = 0, **attrs) -> str:
    """A `lower` that changes attributes of the which-th node of an op."""
    return f"""
    def lower(self, graph):
        import dataclasses
        nodes = list(graph.nodes)
        place = [i for i, node in enumerate(nodes) if node.op == {op!r}]
        if len(place) > {which}:
            i = place[{which}]
            nodes[i] = dataclasses.replace(nodes[i], **{{'attrs': {{**nodes[i].attrs, **{attrs!r}}}}})
        return dataclasses.replace(graph, nodes=tuple(nodes))
"""


RENAMED_OP = """
    def lower(self, graph):
        import dataclasses
        nodes = tuple(dataclasses.replace(n, op="ReLU") if n.op == "ReLU6" else n for n in graph.nodes)
        return dataclasses.replace(graph, nodes=nodes)
"""
MOMENTUM_OFF = """
    def __init__(self, config):
        import dataclasses
        super().__init__(dataclasses.replace(config, momentum=config.momentum * 0.999))
"""
LESS_DECAY = """
    def train_step(self, batch):
        config, oracle = self.config, self.oracle
        before = {name: array.copy() for name, array in oracle.weights.items()}
        loss = super().train_step(batch)
        for name, array in before.items():
            if array.ndim == 1 and not name.endswith(("running_mean", "running_var")):
                oracle.weights[name] += numpy.float32(config.learning_rate * config.weight_decay) * array
        return loss
"""
SWAPPED_STRIDES = """
    def lower(self, graph):
        import dataclasses
        strides = {"conv2": 1, "conv3": 2}
        nodes = tuple(
            dataclasses.replace(n, attrs={**n.attrs, "stride": strides[n.name]}) if n.name in strides else n
            for n in graph.nodes
        )
        return dataclasses.replace(graph, nodes=nodes)
"""
EXTRA_BIAS = """
    def weights(self):
        return {**super().weights(), "conv1.bias": numpy.zeros(8, numpy.float32)}
"""
SUMMED = """
    def gradients(self, batch):
        return {name: g * batch.size for name, g in super().gradients(batch).items()}

    def train_step(self, batch):
        config = self.config
        return self.oracle.train_step(batch.images, batch.labels, learning_rate=config.learning_rate * batch.size,
                                      momentum=config.momentum, weight_decay=config.weight_decay / batch.size)[0]
"""
NESTEROV = """
    def train_step(self, batch):
        config, oracle = self.config, self.oracle
        before = {name: array.copy() for name, array in oracle.weights.items()}
        loss, _, gradients = oracle.train_step(batch.images, batch.labels, learning_rate=config.learning_rate,
                                               momentum=config.momentum, weight_decay=config.weight_decay)
        for name, gradient in gradients.items():
            g = gradient + numpy.float32(config.weight_decay) * before[name]
            step = g + numpy.float32(config.momentum) * oracle.slots[name]["momentum"]
            oracle.weights[name] = before[name] - numpy.float32(config.learning_rate) * step
        return loss
"""
BIASED = """
    def train_step(self, batch):
        old = {name: a.copy() for name, a in self.oracle.weights.items() if name.endswith("running_var")}
        loss = super().train_step(batch)
        shapes = self.graph.shapes()
        for name, before in old.items():
            count = batch.size * shapes[name[:-12]][1] * shapes[name[:-12]][2]
            batch_share = self.oracle.weights[name] - numpy.float32(0.9) * before
            self.oracle.weights[name] = numpy.float32(0.9) * before + batch_share * numpy.float32((count - 1) / count)
        return loss
"""
DROPOUT_ON = """
    def forward(self, batch, *, training=False):
        return super().forward(batch, training=True) if not training and any(
            n.op == "Dropout" for n in self.graph.nodes) else super().forward(batch, training=training)
"""
UNSCALED_DROPOUT = """
    def forward(self, batch, *, training=False):
        logits = super().forward(batch, training=training)
        return logits * numpy.float32(0.75) if training and self.graph.nodes[-1].op == "Dropout" else logits
"""
BGR = """
    def epoch(self, pipeline, number):
        return (self.adopt(numpy.ascontiguousarray(i[:, ::-1]), l) for i, l in pipeline.epoch(number))
"""
SWAPPED_CLASS = """
    def epoch(self, pipeline, number):
        swap = {0: 1, 1: 0}
        for images, labels in pipeline.epoch(number):
            yield self.adopt(images, numpy.array([swap.get(int(l), int(l)) for l in labels]))
"""
DROPPED = """
    def epoch(self, pipeline, number):
        return (self.adopt(i, l) for i, l in pipeline.epoch(number) if len(l) == self.config.batch_size)
"""
SAME_CROPS = """
    def epoch(self, pipeline, number):
        for images, labels in pipeline.epoch(1):
            yield self.adopt(images[::-1].copy() if number > 1 else images, labels[::-1].copy() if number > 1 else labels)
"""
NEVER_FLIPPED = """
    def __init__(self, config):
        import dataclasses
        super().__init__(dataclasses.replace(config, flip="none"))
"""
NOT_RESTORED = """
    def weights(self):
        return {name: array * numpy.float32(1.0000002) for name, array in super().weights().items()}
"""
MUTATIONS = {
    "bias added to a convolution": (EXTRA_BIAS, 0, "conv1.bias"),
    "weights rounded on the way": (NOT_RESTORED, 0, "does not come back"),
    "padding off by one": (change("MaxPool2d", padding=0, kernel=2), 1, "pool"),
    "stride on the wrong convolution": (SWAPPED_STRIDES, 1, "conv2"),
    "eps 1e-3 for 1e-5": (change("BatchNorm2d", eps=1e-3), 1, "bn1"),
    "ReLU for ReLU6": (RENAMED_OP, 1, "relu2"),
    "loss summed for averaged": (SUMMED, 2, "fc"),
    "BatchNorm momentum 0.9 for 0.1": (change("BatchNorm2d", momentum=0.9), 3, "bn1.running"),
    "biased running variance": (BIASED, 3, "running_var"),
    "Nesterov for plain momentum": (NESTEROV, 3, ""),
    "momentum a thousandth too small": (MOMENTUM_OFF, 3, ""),
    "no weight decay of biases and BatchNorm": (LESS_DECAY, 3, ""),
    "RGB for BGR": (BGR, 4, "pixels"),
    "one class index swapped": (SWAPPED_CLASS, 4, "pixels"),
    "last partial batch dropped": (DROPPED, 4, "images"),
    "the same crops in every epoch": (SAME_CROPS, 4, "in the same order"),
    "never flipped": (NEVER_FLIPPED, 4, "flipped"),
    "dropout left on": (DROPOUT_ON, 5, "evaluation"),
    "dropout not scaled": (UNSCALED_DROPOUT, 5, "scaled"),
    "dropout of another share": (change("Dropout", p=0.3), 5, "dropped"),
}


@pytest.fixture
def pipeline_held(monkeypatch):
    """Level 4 holds unasked: what it sees is tested with the pipelines."""
    monkeypatch.setattr(ladder.pipelines, "judge", lambda run_tasks, config: Level(4, True))


@pytest.fixture
def training_held(monkeypatch):
    """The small network's training holds unasked: what it sees is tested in test_parity_training.py."""
    monkeypatch.setattr(ladder.training_check, "judge", lambda run_tasks, config: [Level(3, True)])


@pytest.mark.parametrize("mutation", [name for name, (_, level, _) in MUTATIONS.items() if level != 4])
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_seeded_mistake_is_caught_at_its_level(mutate, mutation):
    check_caught(mutate, *MUTATIONS[mutation])


OF_PIPELINES = [name for name, (_, level, _) in MUTATIONS.items() if level == 4]
# More of them are in test_parity_pipelines.py, without a climb.
OF_PIPELINES_NIGHTLY = ("one class index swapped", "the same crops in every epoch", "never flipped")


@pytest.mark.parametrize("mutation", some_nightly(OF_PIPELINES, OF_PIPELINES_NIGHTLY))
def test_a_seeded_mistake_of_a_pipeline_is_caught(mutate, training_held, mutation):
    check_caught(mutate, *MUTATIONS[mutation])


def check_caught(mutate, body, level, words):
    mutate(body)
    found = climb()
    failed = [one for one in found.levels if not one.passed]
    assert found.status == "failed" and failed, "a hole in the ladder"
    assert failed[0].number == level, failed
    assert words in failed[0].where + found.diverges
    assert level != 3 or (failed[0].ratio or 0) > TOLERANCE, "no number of the network's own steps is off"


WRONG_ROW = """
    def load_weights(self, weights):
        self.given = {{name: array.copy() for name, array in weights.items()}}
        changed = {{name: array.copy() for name, array in weights.items()}}
        if "{name}" in changed:
            changed["{name}"][{row}] *= numpy.float32(1.5)
        super().load_weights(changed)

    def weights(self):
        return self.given
"""


@pytest.mark.parametrize(
    "body, first",
    [
        (RENAMED_OP, "first layer that differs: relu2 (ReLU6), at ("),
        (WRONG_ROW.format(name="conv3.weight", row=5), "first layer that differs: conv3 (Conv2d), at ("),
        (WRONG_ROW.format(name="fc.weight", row=1), "first layer that differs: fc (Linear), at ("),
        (SUMMED, "backward from the loss, the first gradient that differs: fc.bias (Linear) at ("),
        (NESTEROV, "after the steps, the first that differs: conv1.weight (Conv2d) at ("),
    ],
    ids=["in the middle", "one channel", "the last layer", "backward", "in steps"],
)
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_where_it_goes_another_way_is_said_with_both_values(mutate, body, first):
    mutate(body)
    found = climb()
    assert first in found.diverges and ", expected " in found.diverges, found.diverges


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_difference_that_no_single_value_shows_is_seen_in_a_sum_of_all(mutate, monkeypatch):
    monkeypatch.setattr(surgery, "FEWEST", 2)
    monkeypatch.setattr(surgery, "PEEK_VALUES", 1)
    mutate(WRONG_ROW.format(name="conv2.weight", row=5))
    found = climb()
    assert "conv2 (Conv2d), in a sum" in found.diverges and ", expected " in found.diverges, found.diverges


def test_a_verdict_is_cached_until_the_adapter_changes(mutate, pipeline_held):
    mutate()
    said = []
    climb(say=said.append)
    assert any("levels" in line for line in said)
    said.clear()
    assert climb(say=said.append).status == "passed"
    assert said == []
    mutate("    name = 'mutated'\n    # another state of the source\n")
    climb(say=said.append)
    assert any("levels" in line for line in said)


def test_what_a_framework_does_not_support_is_said(mutate):
    mutate()
    found = climb(execution="graph")
    assert (found.status, found.column()) == ("unsupported", "unsupported")
    assert "declares no execution 'graph'" in found.reason


def test_a_native_pipeline_that_is_not_installed_is_neither_held_nor_failed(mutate):
    mutate(
        "\n    def open_pipeline(self, pictures):\n"
        "        from framework_compare.errors import Unsupported\n"
        "        raise Unsupported('its loader is not installed')\n"
    )
    found = climb()
    assert (found.status, found.column()) == ("passed", "0-3, 5, not asked: 4")
    assert found.levels[4].where == "its loader is not installed"


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_biased_variance_that_is_declared_is_held_to_that(mutate):
    declared = "\n    def settings(self):\n        return {'running_variance': 'biased'}\n"
    mutate(BIASED + declared)
    found = climb()
    assert found.status == "passed"
    mutate(declared)
    assert climb().highest == 2


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_an_adapter_that_raises_fails_those_levels_only_that_ask_for_it(mutate):
    mutate("\n    def gradients(self, batch):\n        raise RuntimeError('no gradients')\n")
    found = climb()
    failed = [level for level in found.levels if not level.passed]
    assert [level.number for level in failed] == [2, 5]
    assert all("no gradients" in level.where for level in failed)


def command(*arguments):
    """Exit code of `framework-compare verify`."""
    from framework_compare.cli.root import app

    return app(["verify", *arguments], standalone_mode=False)


def test_a_framework_that_is_not_there_is_no_proof(own_cache, tmp_path, capsys):
    code = command("--frameworks", "torch", "--models", "alexnet", "--python", f"torch={tmp_path}/none")
    said = capsys.readouterr()
    assert code == 1
    assert "not-installed" in said.out and "does not exist" in " ".join(said.out.split())
    assert "nothing was verified" in said.err


def test_a_network_that_cannot_be_is_refused_before_an_environment_is_sought(own_cache, tmp_path):
    python = ("--python", f"torch={tmp_path}/none")
    with pytest.raises(UsageError, match="alexnet does not accept image_size 8: .*; use a larger one"):
        command("--frameworks", "torch", "--models", "resnet50,alexnet", "--image-size", "8", *python)


def test_what_no_framework_supports_is_no_proof(mutate, capsys):
    mutate()
    names = ("--frameworks", "mutated", "--models", "small")
    code = command(*names, "--precision", "fp16", "--python", f"mutated={sys.executable}")
    assert code == 1 and "nothing was verified" in capsys.readouterr().err


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_without_a_version_a_verdict_is_kept_by_all_packages(mutate, monkeypatch):
    from framework_compare.environments import managed

    mutate()
    entry = dataclasses.replace(registry.FRAMEWORKS["mutated"], imports="json")  # a module that no distribution has
    monkeypatch.setitem(registry.FRAMEWORKS, "mutated", entry)
    said = []
    climb(say=said.append)
    said.clear()
    climb(say=said.append)
    assert said == []
    given = managed._given
    monkeypatch.setattr(
        managed, "_given", lambda *a: dataclasses.replace(found := given(*a), packages={**found.packages, "new": "2"})
    )
    climb(say=said.append)
    assert any("levels" in line for line in said)


NO_LOADER = """
    def open_pipeline(self, pictures):
        from framework_compare.errors import Unsupported
        raise Unsupported("its loader is not installed")
"""


def test_a_level_that_could_not_be_asked_is_no_proof_but_of_cells_without_it(mutate, capsys):
    mutate(NO_LOADER)
    names = ("--frameworks", "mutated", "--models", "small", "--image-size", "32", "--threads", "1")
    python = ("--python", f"mutated={sys.executable}")
    assert command(*names, *python) == 1
    assert not command(*names, *python, "--pipeline", "shared")
    assert "0-3, 5" in capsys.readouterr().out


def test_a_cell_that_is_required_to_pass_is_not_run_where_a_level_could_not_be_asked(mutate, pictures, tmp_path):
    mutate(NO_LOADER)
    study = train(pictures, tmp_path, verify="require")
    assert study.frame.status[0] == "failed" and "0-3, 5, not asked: 4" in study.frame.reason[0]


@pytest.mark.usefixtures("pipeline_held")
def test_a_training_that_fails_is_known_to_studies(mutate, pictures, tmp_path):
    mutate(
        """
    def __init__(self, config):
        import dataclasses
        super().__init__(dataclasses.replace(config, weight_decay=config.weight_decay or 1e-3))
"""
    )
    climb(batch_size=4)
    assert train(pictures, tmp_path).frame.parity[0].startswith("0-2, not 3: as a cell trains")


@pytest.mark.usefixtures("pipeline_held")
@pytest.mark.parametrize("pipeline, known", [("memory", True), ("shared", False)])
def test_what_is_proved_of_the_native_pipelines_cells_holds_for_those_from_memory(mutate, pipeline, known):
    mutate()
    climb()
    said = []
    found = climb(pipeline=pipeline, say=said.append)
    assert found.column() == "0-3, 5"
    assert any("training as cells train" in line for line in said) is not known


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_each_device_has_environments_of_its_own(mutate):
    mutate()
    found = ladder.verify(
        ["mutated"], ["small"], device=["cuda", "cpu"], image_size=32, threads=1,
        where=ladder.Where(python={"mutated": sys.executable}),
    )  # fmt: skip
    assert [one.status for one in found] == ["unsupported", "passed"]


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_records_survive_json(mutate):
    mutate()
    found = climb()
    assert type(found).from_dict(found.to_dict()) == dataclasses.replace(found)


def train(pictures, tmp_path, **settings):
    from framework_compare import compare

    return compare(
        ["mutated"],
        ["small"],
        dataset=pictures,
        out=tmp_path / "study",
        python={"mutated": sys.executable},
        batch_size=4,
        epochs=1,
        image_size=32,
        threads=1,
        sampling_hz=0,
        **settings,
    )


def test_a_cell_without_a_verdict_is_shown_and_marked(mutate, pictures, tmp_path):
    mutate()
    found = train(pictures, tmp_path)
    assert found.frame["status"].tolist() == ["ok"] and found.frame["parity"].tolist() == ["unverified"]
    assert "parity unverified" in found.table("time", width=200)


def test_a_proved_cell_has_its_level_and_no_mark(mutate, short_level_4, pictures, tmp_path):
    mutate()
    climb(batch_size=4)
    found = train(pictures, tmp_path)
    assert found.frame["parity"].tolist() == ["0-5"] and found.frame["parity_error"].notna().all()
    assert "parity" not in found.table("time", width=200)


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_cell_that_is_required_to_pass_and_does_not_is_not_run(mutate, pictures, tmp_path):
    mutate(SUMMED)
    row = train(pictures, tmp_path, verify="require").frame.iloc[0]
    assert row["status"] == "failed" and "not 2" in row["reason"]


def test_parity_can_be_left_out(mutate, pictures, tmp_path):
    mutate()
    found = train(pictures, tmp_path, verify="off")
    assert found.frame["parity"].isna().all() and "parity" not in found.table("time", width=200)


NO_DROPOUT_IN_STEPS = """
    def gradients(self, batch):
        return self.oracle.gradients(batch.images, batch.labels)[2]
"""
ONE_MASK = """
    def forward(self, batch, *, training=False):
        logits = super().forward(batch, training=training)
        if training and self.graph.nodes[-1].op == "Dropout":
            plain = self.oracle.forward(batch.images, training=True)
            logits = plain * (self.random.random(plain.shape[1:]) < 0.5) * numpy.float32(2)
        return logits
"""
STALE_IMAGES = """
    def train_step(self, batch):
        self.first = getattr(self, "first", batch.images)
        return super().train_step(batch._replace(images=self.first))
    def load_weights(self, weights):
        self.__dict__.pop("first", None)
        super().load_weights(weights)
"""
MOMENTUM_KEPT = """
    def load_weights(self, weights):
        kept = getattr(self.oracle, "slots", {})
        super().load_weights(weights)
        self.oracle.slots = {name: slots for name, slots in kept.items() if name in self.oracle.weights}
"""
BY_CONFIG = """
    def gradients(self, batch):
        factor = numpy.float32(batch.size / self.config.batch_size)
        return {name: array * factor for name, array in super().gradients(batch).items()}
"""


@pytest.mark.parametrize(
    "body, level, words",
    [
        (NO_DROPOUT_IN_STEPS, 5, "off in training steps"),
        (ONE_MASK, 5, "all images of a batch"),
        (STALE_IMAGES, 3, ""),
        (MOMENTUM_KEPT, 3, "momentum from earlier steps"),
        (BY_CONFIG, 2, ""),
    ],
    ids=[
        "dropout off in steps",
        "one dropout mask a batch",
        "images of the first step kept",
        "momentum kept",
        "loss by config.batch_size",
    ],
)
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_mistake_that_only_training_shows_is_caught(mutate, body, level, words):
    mutate(body)
    found = climb()
    failed = [one for one in found.levels if not one.passed]
    assert [one.number for one in failed][:1] == [level] and words in failed[0].where, found.column()


def test_a_mistake_that_only_other_settings_show_fails_level_3(mutate, pipeline_held):
    mutate(
        """
    def __init__(self, config):
        import dataclasses
        super().__init__(dataclasses.replace(config, weight_decay=config.weight_decay or 1e-3))
"""
    )
    found = climb()
    assert (found.status, found.highest) == ("failed", 2) and "as a cell trains" in found.worst.where
    assert climb().status == "failed"


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_worker_that_was_killed_is_asked_again(mutate, tmp_path):
    mark = tmp_path / "killed"
    body = f"""
    def gradients(self, batch):
        import os, signal
        if not os.path.exists({str(mark)!r}):
            open({str(mark)!r}, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().gradients(batch)
"""
    mutate(body)
    assert climb().status == "failed"
    assert climb().status == "passed"


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_an_answer_of_another_form_fails_its_level(mutate):
    mutate(
        "\n    def forward(self, batch, *, training=False):\n"
        "        logits = super().forward(batch, training=training)\n"
        "        return logits[:, 1:] if self.graph.nodes[-1].op == 'Dropout' else logits\n"
    )
    found = climb()
    assert found.status == "failed" and not found.levels[-1].passed and "cannot be judged" in found.levels[-1].where


@pytest.mark.parametrize("content", [None, "{", "[]", "\0"], ids=["missing", "cut short", "a list", "binary"])
def test_a_study_without_readable_verdicts_has_none(tmp_path, content):
    if content is not None:
        (tmp_path / verdicts.FILE).write_text(content)
    assert verdicts.read(tmp_path) == {}


NEIGHBOURS_MIXED = """
    def forward(self, batch, *, training=False):
        logits = super().forward(batch, training=training)
        return numpy.roll(logits, 1, axis=0) if batch.size > 4 and {when} else logits
"""
LAST_LEFT_OUT = """
    def gradients(self, batch):
        if batch.size > 4:
            batch = self.adopt(batch.images[:-1], batch.labels[:-1])
        return super().gradients(batch)
"""
THREE_THREADS = """
    def forward(self, batch, *, training=False):
        return super().forward(batch, training=training) * numpy.float32(1.01 if self.config.threads == 3 else 1)
"""


@pytest.mark.parametrize("batch_size", [16, 7], ids=["copies alike", "one copy more"])
@pytest.mark.parametrize(
    "body, level, where",
    [
        (NEIGHBOURS_MIXED.format(when="not training"), 1, "logits, BatchNorm in evaluation mode"),
        (NEIGHBOURS_MIXED.format(when="training"), 1, "logits, BatchNorm in training mode"),
        (LAST_LEFT_OUT, 2, "fc.bias"),
    ],
    ids=["evaluation", "training", "gradients"],
)
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_mistake_that_only_the_cells_own_batch_shows_is_caught(mutate, body, level, where, batch_size):
    mutate(body)
    assert climb(batch_size=4).status == "passed"
    found = climb(batch_size=batch_size)
    assert (found.status, found.highest, found.worst.where) == (
        "failed",
        level - 1,
        f"{where} at a batch of {batch_size}",
    )
    assert "that differs: " in found.diverges, found.diverges


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 16, 37])
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_the_reference_passes_at_batches_of_all_sizes(mutate, batch_size):
    mutate()
    found = climb(batch_size=batch_size)
    assert found.status == "passed", [one for one in found.levels if not one.passed]


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_verdict_is_of_one_number_of_threads(mutate):
    mutate(THREE_THREADS)
    assert [climb(threads=threads).status for threads in (1, 3)] == ["passed", "failed"]

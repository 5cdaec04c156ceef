"""A small network, trained as a cell trains, is gone over step by step: seeded mistakes that a whole network's levels miss."""

import pytest
from nightly import some_nightly

from framework_compare.parity.training import training_check

CLASS = """

class Mutated(ReferenceTrainer):
    def step(self, batch, dropout=True, **other):
        config = self.config
        settings = {{name: getattr(config, name) for name in ("learning_rate", "momentum", "weight_decay")}}
        chance = self.random if dropout else None
        return self.oracle.train_step(batch.images, batch.labels, **{{**settings, **other}}, dropout=chance)[0]

{body}
"""


def step(body: str) -> str:
    return f"""
    def train_step(self, batch):
        {body}
"""


MISTAKES = {
    "decay where none was asked": step("return self.step(batch, weight_decay=self.config.weight_decay or 1e-4)"),
    "momentum of its own": step("return self.step(batch, momentum=0.9)"),
    "rate halved in real epochs": step(
        "return self.step(batch, learning_rate=self.config.learning_rate / (2 if self.config.epochs else 1))"
    ),
    "rate that falls from epoch to epoch": """
    def epoch(self, pipeline, number):
        self.rate = self.config.learning_rate * 0.5 ** (number - 1)
        return super().epoch(pipeline, number)
"""
    + step("return self.step(batch, learning_rate=getattr(self, 'rate', self.config.learning_rate))"),
    "rate that falls after four steps": step(
        "self.steps = getattr(self, 'steps', 0) + 1; "
        "return self.step(batch, learning_rate=self.config.learning_rate * (0.5 if self.steps > 4 else 1))"
    ),
    "rate by the batch's size": step(
        "return self.step(batch, learning_rate=self.config.learning_rate * max(1, batch.size / 2))"
    ),
    "small batches padded": step("""
        missing = self.config.batch_size - batch.size
        images = numpy.concatenate([batch.images, numpy.zeros((missing, *batch.images.shape[1:]), numpy.float32)])
        labels = numpy.concatenate([batch.labels, numpy.zeros(missing, numpy.int64)])
        return self.step(batch._replace(images=images, labels=labels))"""),
    "small batches left out": step("""
        if batch.size < self.config.batch_size:
            return self.oracle.gradients(batch.images, batch.labels)[0]
        return self.step(batch)"""),
    "other pixels trained than shown": """
    def epoch(self, pipeline, number):
        self.native = True
        return super().epoch(pipeline, number)

    def train_step(self, batch):
        darker = numpy.float32(0.9) if getattr(self, "native", False) else numpy.float32(1)
        return self.step(batch._replace(images=batch.images * darker))
""",
    "other labels trained than shown": """
    def read_batch(self, batch):
        return batch.images, numpy.roll(batch.labels, 1)
""",
    "running statistics not loaded again": """
    def load_weights(self, weights):
        kept = {} if self.oracle is None else self.oracle.weights
        super().load_weights(weights)
        self.oracle.weights.update({n: a for n, a in kept.items() if "running" in n and n in self.oracle.weights})
""",
    "Nesterov where there is no decay": """
    def train_step(self, batch):
        config, oracle = self.config, self.oracle
        if config.weight_decay or not config.momentum:
            return self.step(batch)
        before = {name: array.copy() for name, array in oracle.weights.items()}
        rates = {"learning_rate": config.learning_rate, "momentum": config.momentum}
        loss, _, gradients = oracle.train_step(batch.images, batch.labels, dropout=self.random, **rates)
        for name, gradient in gradients.items():
            ahead = gradient + numpy.float32(config.momentum) * oracle.slots[name]["momentum"]
            oracle.weights[name] = before[name] - numpy.float32(config.learning_rate) * ahead
        return loss
""",
    "decay where there is momentum and none was asked": step(
        "return self.step(batch, weight_decay=self.config.weight_decay or 5e-4 * (self.config.momentum > 0))"
    ),
    "no decay without momentum": step(
        "return self.step(batch, weight_decay=self.config.weight_decay * (self.config.momentum > 0))"
    ),
    "a step that spoils its batch": step("loss = self.step(batch); batch.images[:] *= 0.5; return loss"),
    "running statistics of full batches only": step("""
        before = {name: array.copy() for name, array in self.oracle.weights.items() if "running" in name}
        loss = self.step(batch)
        if batch.size < self.config.batch_size:
            self.oracle.weights.update(before)
        return loss"""),
    "no dropout in batches of several": step("return self.step(batch, dropout=batch.size == 1)"),
    "one mask for a batch": """
    def train_step(self, batch):
        class OneMask:
            def random(_, shape):
                return numpy.broadcast_to(random.random((1, *shape[1:])), shape)

        random, self.random = self.random, OneMask()
        loss = self.step(batch)
        self.random = random
        return loss
""",
    "the same mask from the second step on": """
    def train_step(self, batch):
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps > 1:
            self.random = numpy.random.default_rng(5)
        return self.step(batch)
""",
    "no dropout in steps": step("return self.step(batch, dropout=False)"),
    "the same mask in every step": step(
        "self.random = numpy.random.default_rng(self.config.seed); return self.step(batch)"
    ),
    "another share in steps": step(
        "self.oracle = self.oracle if hasattr(self, 'less') else self.lessen(); return self.step(batch)"
    )
    + """
    def lessen(self):
        import dataclasses
        nodes = [dataclasses.replace(n, attrs={"p": 0.6}) if n.op == "Dropout" else n for n in self.graph.nodes]
        self.less = True
        return Oracle(dataclasses.replace(self.graph, nodes=tuple(nodes)), self.oracle.weights, numpy.float32)
""",
}
# Of dropout, which level 5 is of; the others are of level 3.
OF_DROPOUT = {
    *("no dropout in batches of several", "one mask for a batch", "the same mask from the second step on"),
    *("no dropout in steps", "the same mask in every step", "another share in steps"),
}


@pytest.fixture
def judge(ask_mutated):
    """What the float32 reference with the methods given comes to."""

    def run(body: str = "", **settings):
        return training_check.judge(*ask_mutated(CLASS.format(body=body), **settings))

    return run


@pytest.mark.parametrize("settings", [{"seed": 2**40}, {"pipeline": "shared"}, {"pipeline": "memory"}], ids=str)
def test_an_honest_training_passes(judge, settings):
    levels = judge(**settings)
    assert [level.passed for level in levels] == [True, True], levels
    assert levels[0].ratio < 5


# Each beside one of its kind that is asked by day.
NIGHTLY = (
    *("momentum of its own", "rate halved in real epochs", "rate by the batch's size", "small batches padded"),
    *("decay where there is momentum and none was asked", "no decay without momentum"),
    *("running statistics of full batches only", "no dropout in batches of several"),
    "the same mask from the second step on",
)


@pytest.mark.parametrize("mistake", some_nightly(MISTAKES, NIGHTLY))
def test_a_mistake_of_training_is_seen(judge, mistake):
    levels = judge(MISTAKES[mistake])
    failed = [level for level in levels if not level.passed]
    assert failed and failed[0].number == (5 if mistake in OF_DROPOUT else 3), levels
    assert failed[0].where.startswith("as a cell trains, "), failed


def test_without_a_native_pipeline_others_are_gone_over(judge):
    levels = judge(
        "    def open_pipeline(self, images):\n"
        "        from framework_compare.errors import Unsupported\n"
        "        raise Unsupported('its loader is not installed')\n"
    )
    assert all(level.passed for level in levels) and "held batches" in levels[0].where
    level = judge(ONE_ARRAY, pipeline="shared")[0]
    assert not level.passed and "the shared pipeline" in level.where
    levels = judge(step("import os; os.kill(os.getpid(), 9)"))
    assert [(level.passed, level.answered) for level in levels] == [(False, False)] * 2, levels


ONE_ARRAY = """
    def host_array(self, shape):
        held = self.__dict__.setdefault("arrays", {})
        return held.setdefault(shape, numpy.empty(shape, numpy.float32))
"""


def test_a_biased_running_variance_is_held_to_what_is_declared(judge):
    biased = step("""
        name = "bn.running_var"
        if name not in self.oracle.weights:
            return self.step(batch)
        before = self.oracle.weights[name].copy()
        loss, count = self.step(batch), batch.size * 256
        share = self.oracle.weights[name] - numpy.float32(0.9) * before
        self.oracle.weights[name] = numpy.float32(0.9) * before + share * numpy.float32((count - 1) / count)
        return loss""")
    level = judge(biased)[0]
    assert not level.passed and "bn.running_var" in level.where
    declared = "\n    def settings(self):\n        return {'running_variance': 'biased'}\n"
    assert judge(biased + declared)[0].passed

"""Libraries on top of a framework train the function that the graph is, in the loops of their guides."""

import itertools

import pytest
from processes import write_script

from framework_compare.conformance import graphs
from framework_compare.environments import managed
from framework_compare.parity.verify import Where, verify

KERAS = ["keras-tensorflow", "keras-jax", "keras-torch"]
LIBRARIES = [*KERAS, "flax", "lightning"]
EXECUTIONS = ["default", "compiled", "eager"]
UPDATES = {"optimizer": "adamw", "beta2": 0.95, "clip_norm": 1.0, "ramp_updates": 10, "decay_updates": 100}
PARTS = ["branched", "plain", "attention"]


@pytest.fixture(autouse=True)
def networks():
    graphs.register()


SMALL, LANGUAGE = {"image_size": 32}, {"batch_size": 2, **UPDATES}  # as language models are trained
OF_KERAS = list(itertools.product(KERAS, ["default", "fit"]))
OTHERS = [*(("flax", execution) for execution in EXECUTIONS), ("lightning", "default")]
RECURRENT, OPTIMIZERS = ("lstm_ibm", "gru_ibm", "tweet_span"), ("adam", "rmsprop", "nadam")
CASES = [
    *((name, f"conformance-{part}", {**SMALL, "execution": how}) for name, how in OF_KERAS + OTHERS for part in PARTS),
    *((name, "diabetes_ann", {"optimizer": optimizer}) for name in LIBRARIES for optimizer in OPTIMIZERS),
    *((name, model, {"optimizer": "adam"}) for name in LIBRARIES for model in RECURRENT),
    *((name, model, LANGUAGE) for name in LIBRARIES for model in ("gpt_nano", "llama_nano")),
    *((name, "gpt_nano", {**LANGUAGE, "accumulation": 2}) for name in ("flax", "lightning")),
]


@pytest.mark.nightly
@pytest.mark.parametrize("framework, model, settings", CASES)
def test_libraries_hold_all_levels(framework, model, settings):
    (found,) = verify(framework, model, threads=1, fresh=True, **settings)
    assert found.proves(), (found.reason, found.levels)


# An array that was not placed on the device becomes placed by a step, whose program is then compiled again.
COMPILED = """
import logging

seen = []
handler = logging.Handler()
handler.emit = lambda record: seen.append(record.getMessage())
logging.getLogger("jax").addHandler(handler)
trainer.jax.config.update("jax_log_compiles", True)
shape = (4, *graph.input_shape[1:], graph.input_shape[0])
batch = trainer.to_device_batch(np.zeros(shape, np.float32), np.zeros(4, np.int64))
answer = []
for _ in range(3):
    seen.clear()
    trainer.read_losses([trainer.train_step(batch)])
    answer.append(sum(line.startswith("Compiling ") and "step" in line for line in seen))
trainer.jax.config.update("jax_log_compiles", False)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("framework, execution", [("keras-jax", "default"), ("keras-jax", "fit"), ("flax", "default")])
def test_a_step_is_compiled_once(trainer_script, images, framework, execution):
    found = trainer_script(framework, "conformance-plain", COMPILED, images=images, image_size=32, execution=execution)
    assert found == [1, 0, 0]


@pytest.mark.nightly
def test_lightning_looks_for_no_cluster(tmp_path):
    """Where mpi4py is installed without a working MPI, asking it ends the process."""
    package, told = tmp_path / "mpi4py", tmp_path / "mpi4py-4.1.2.dist-info"
    package.mkdir(), told.mkdir()
    (package / "__init__.py").write_text("")
    (package / "MPI.py").write_text("import os\nos._exit(1)\n")
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: mpi4py\nVersion: 4.1.2\n")
    script = f'PYTHONPATH={tmp_path} exec {managed.ensure("lightning").python} "$@"'
    python = write_script(tmp_path / "python", script)
    (found,) = verify("lightning", "diabetes_ann", where=Where({"lightning": str(python)}), threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)

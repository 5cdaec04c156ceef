"""Libraries on top of a framework train the function that the graph is, in the loops of their guides."""

import pytest

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


@pytest.mark.nightly
@pytest.mark.parametrize("execution", ["default", "fit"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("framework", KERAS)
def test_keras_holds_all_levels(framework, part, execution):
    (found,) = verify(framework, f"conformance-{part}", execution=execution, image_size=32, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("framework, execution", [*(("flax", one) for one in EXECUTIONS), ("lightning", "default")])
@pytest.mark.parametrize("part", PARTS)
def test_flax_and_lightning_hold_all_levels(framework, execution, part):
    (found,) = verify(framework, f"conformance-{part}", execution=execution, image_size=32, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "nadam"])
@pytest.mark.parametrize("framework", LIBRARIES)
def test_libraries_have_the_optimizers_of_the_graph(framework, optimizer):
    (found,) = verify(framework, "diabetes_ann", optimizer=optimizer, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["lstm_ibm", "gru_ibm", "tweet_span"])
@pytest.mark.parametrize("framework", LIBRARIES)
def test_libraries_have_recurrent_layers(framework, model):
    (found,) = verify(framework, model, optimizer="adam", threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["gpt_nano", "llama_nano"])
@pytest.mark.parametrize("framework", LIBRARIES)
def test_libraries_have_language_models(framework, model):
    """With AdamW, clipping and a schedule, as these models are trained."""
    (found,) = verify(framework, model, batch_size=2, threads=1, fresh=True, **UPDATES)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["flax", "lightning"])
def test_an_update_of_several_batches_is_that_of_their_mean(framework):
    (found,) = verify(framework, "gpt_nano", batch_size=2, threads=1, fresh=True, accumulation=2, **UPDATES)
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
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH={tmp_path}\nexec {managed.ensure("lightning").python} "$@"\n')
    python.chmod(0o755)
    (found,) = verify("lightning", "diabetes_ann", where=Where({"lightning": str(python)}), threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)

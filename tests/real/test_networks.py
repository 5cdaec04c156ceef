"""The networks that adapters build, seen from inside their frameworks."""

import numpy as np
import pytest
import rounding_bounds
from bounds import rounding
from nightly import some_nightly

from framework_compare import registry
from framework_compare.graph import initial_weights, weights_size
from framework_compare.plan import planning
from framework_compare.protocol import TrainConfig

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax", "singa"]
TORCHVISION = {"alexnet": "alexnet", "mobilenet_v2": "mobilenet_v2", "resnet50_v1_5": "resnet50", "vgg16": "vgg16"}


@pytest.mark.parametrize("model", some_nightly(TORCHVISION, nightly=["alexnet", "vgg16"]))
def test_logits_are_torchvisions(trainer_script, images, model):
    body = f"""
import torch
from framework_compare.adapters.torch.pipeline import import_torchvision
from framework_compare.protocol import Batch
theirs = import_torchvision(torch).models.{TORCHVISION[model]}(num_classes=3)
missing = theirs.load_state_dict({{name: torch.from_numpy(array) for name, array in weights.items()}}, strict=False)
assert not missing.unexpected_keys, missing.unexpected_keys
assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys), missing.missing_keys
images = np.random.default_rng(0).standard_normal((2, 96, 96, 3), dtype=np.float32)
ours = trainer.forward(trainer.to_device_batch(images, np.zeros(2, np.int64)))
with torch.no_grad():
    theirs = theirs.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
answer = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
"""
    found = trainer_script("torch", model, body, images=images, image_size=96)
    graph = planning.build_graph(model, TrainConfig(image_size=96))
    flat = np.empty(weights_size(graph), np.float32)
    inputs = np.random.default_rng(0).standard_normal((2, 96, 96, 3), dtype=np.float32).transpose(0, 3, 1, 2)
    assert found <= rounding_bounds.of_logits(graph, initial_weights(graph, 0, flat), inputs)


ROUND_TRIP = """
back = trainer.weights()
differing = [name for name, array in weights.items() if not np.array_equal(back[name], array)]
answer = {"names": list(back) and sorted(back) == sorted(weights), "differing": differing}
"""


LARGE = ["mobilenet_v2", "alexnet", "vgg16"]  # no layer of theirs is of another kind


@pytest.mark.parametrize("model", some_nightly(["small", *LARGE], nightly=LARGE))
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_weights_come_back_as_they_went_in(trainer_script, images, small, framework, model):
    assert trainer_script(framework, model, ROUND_TRIP, images=images) == {"names": True, "differing": []}


STEP = """
rng = np.random.default_rng(0)
shape = (4, 3, 64, 64) if trainer.layout == "NCHW" else (4, 64, 64, 3)
images = rng.standard_normal((4, 3, 64, 64), dtype=np.float32)
if trainer.layout == "NHWC":
    images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
batch = trainer.to_device_batch(images, np.array([0, 1, 2, 0]))
losses = [trainer.read_losses([trainer.train_step(batch)])[0] for _ in range(3)]
trainer.load_weights(weights)
again = [trainer.read_losses([trainer.train_step(batch)])[0] for _ in range(3)]
answer = {"losses": losses, "again": again}
"""


@pytest.fixture(scope="module", params=some_nightly(["without_dropout", "resnet50"], nightly=["resnet50"]))
def first_losses(request, trainer_script, images):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.MODELS, "without_dropout", registry.Model("small:without_dropout"))
        found = {f: trainer_script(f, request.param, STEP, images=images) for f in FRAMEWORKS}
        config = TrainConfig(image_size=64)
        inputs = np.random.default_rng(0).standard_normal((4, 3, 64, 64), dtype=np.float32)
        graph = planning.build_graph(request.param, config)
        return found, *rounding_bounds.of_steps(graph, [(inputs, np.array([0, 1, 2, 0]))] * 3, config)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_first_loss_is_the_same_in_all_frameworks_and_loading_weights_takes_training_back_to_it(
    first_losses, framework
):
    found, exact, allowed = first_losses
    losses, again = (np.array(found[framework][name]) for name in ("losses", "again"))
    assert abs(losses[0] - exact[0]) <= allowed[0]
    assert (np.abs(losses - again) <= allowed).all(), (losses, again, allowed)
    assert abs(losses[0] - losses[1]) > allowed[0]  # rounding grows, in ResNet-50 up to what a step changes


LATE = """
rng = np.random.default_rng(0)
labels = np.array([0, 1, 2, 0])
images = [rng.standard_normal((4, 64, 64, 3), dtype=np.float32) for _ in range(11)]
batches = [trainer.to_device_batch(one, labels) for one in images]
plain = [trainer.read_losses([trainer.train_step(batch)])[0] for batch in batches]
trainer._keeps_losses = True  # as beside a GPU
trainer.build(graph)
answer = {"plain": plain}
for lag in (0, 1, 8, 20):
    trainer.load_weights(weights)
    found, pending = [], []
    for batch in batches:
        pending.append(trainer.train_step(batch))
        if len(pending) > lag:
            found += trainer.read_losses([pending.pop(0)])
    answer[lag] = found + trainer.read_losses(pending)
trainer.load_weights(weights)
pending = [trainer.train_step(batch) for batch in batches]
trainer.load_weights(weights)
trainer.train_step(batches[-1])
answer["after others began"] = trainer.read_losses(pending)
"""


@pytest.mark.parametrize("model", some_nightly(["small", "alexnet"], nightly=["alexnet"]))
def test_losses_that_jax_reads_together_are_those_of_their_steps(trainer_script, images, small, model):
    found = trainer_script("jax", model, LATE, images=images)
    plain = found.pop("plain")
    assert len(found) == 5 and len(set(plain)) == 11
    rng, labels, config = np.random.default_rng(0), np.array([0, 1, 2, 0]), TrainConfig(image_size=64)
    images = [rng.standard_normal((4, 64, 64, 3), dtype=np.float32).transpose(0, 3, 1, 2) for _ in plain]
    _, allowed = rounding_bounds.of_steps(planning.build_graph(model, config), [(x, labels) for x in images], config)
    for when, losses in found.items():
        assert (np.abs(np.subtract(losses, plain)) <= allowed).all(), (when, losses, plain, allowed)


EVEN = """
from types import SimpleNamespace
from framework_compare.adapters.jax.network import Network
jax, jnp, plain, taken = trainer.jax, trainer.jax.numpy, trainer.jax.nn.dot_product_attention, []

def by_xla(*arrays, implementation=None, **how):
    "What cuDNN is asked for, by XLA, which knows the lengths of sequences, too."
    taken.append(implementation)
    return plain(*arrays, **how)

def outputs(flash, causal, arrays, weight):
    net, node = Network.__new__(Network), SimpleNamespace(attrs={"scale": 0.3, "causal": causal})
    net.jax, net.flash = jax, flash
    attend = lambda *arrays: net.attend(node, *arrays, None)
    both = lambda *arrays: (attend(*arrays), *jax.vjp(attend, *arrays)[1](weight))
    return [np.asarray(array) for array in jax.jit(both)(*arrays)]

rng, answer = np.random.default_rng(0), []
jax.nn.dot_product_attention = by_xla
try:
    for queries, keys, causal in [(5, 5, False), (7, 7, True), (5, 8, False), (8, 5, False), (1, 1, False), (6, 6, True)]:
        shapes = [(2, queries, 4, 8), (2, keys, 2, 8), (2, keys, 2, 8), (2, queries, 4, 8)]
        *arrays, weight = (jnp.asarray(rng.standard_normal(shape), "float32") for shape in shapes)
        ours, theirs = (outputs(flash, causal, arrays, weight) for flash in (True, False))
        assert [one.shape for one in ours] == [one.shape for one in theirs]
        largest = max(np.abs(array).max() for array in theirs)
        answer.append(float(max(np.abs(a - b).max() for a, b in zip(ours, theirs)) / largest))
finally:
    jax.nn.dot_product_attention = plain
assert "cudnn" in taken and None in taken
"""


@pytest.mark.nightly  # tests/gpu asks it of a whole decoder
def test_attention_that_jax_pads_for_cudnn_is_that_of_the_steps(trainer_script, images):
    assert max(trainer_script("jax", "mobilenet_v2", EVEN, images=images, build=False)) < rounding(100, np.float32)

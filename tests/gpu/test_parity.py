"""The ladder on a real GPU: float32 really is float32 there, and each other precision rounds as it should."""

import pytest

from framework_compare.parity.verify import Where, verify

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
UNSUPPORTED = [("mxnet", "bf16")]
PRECISIONS = [(framework, name) for name in ("tf32", "bf16", "fp16") for framework in FRAMEWORKS]


def passes(framework, python, models=(), **settings):
    where = Where(python=python)
    # op by op, JAX takes a compilation for each shape of each operator: minutes for a deep network. In fp16 MobileNetV2's
    # first gradients overflow at the first scale, the reference's too; a scaler skips such steps, and the ladder cannot.
    shallow = settings.get("precision") == "fp16" or (framework, settings.get("execution")) == ("jax", "eager")
    models = list(models) or (["alexnet"] if shallow else ["alexnet", "mobilenet_v2"])
    found = verify([framework], models, device="cuda", image_size=64, fresh=True, where=where, **settings)
    for parity in found:
        assert parity.status == "passed", f"{parity.model}: {parity.column()} {parity.worst}"
    return found


@pytest.mark.parametrize("execution", ["eager", "graph"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_float32_passes_every_level(framework, execution, python_of):
    passes(framework, python_of(framework), execution=execution)


@pytest.mark.parametrize("framework, precision", [pair for pair in PRECISIONS if pair not in UNSUPPORTED])
def test_each_precision_passes_by_its_own_yardstick(framework, precision, python_of, lacking):
    python = python_of(framework)
    if lacking(precision):
        pytest.skip(lacking(precision))
    assert {parity.remark for parity in passes(framework, python, precision=precision)} == {""}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_padded_average_pools_pass(framework, python_of):
    """PyTorch 2.11's own kernel for channels_last images on a GPU puts their gradients in wrong places."""
    passes(framework, python_of(framework), ["tiny_cnn"])


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_decoder_passes_in_bf16(framework, python_of, lacking):
    """Its attention is fused there: PyTorch's own kernel, cuDNN's in JAX."""
    python = python_of(framework)
    if lacking("bf16"):
        pytest.skip(lacking("bf16"))
    passes(framework, python, ["gpt_nano"], precision="bf16")


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_recurrent_layers_pass(framework, precision, python_of, lacking):
    """They are cuDNN's in PyTorch and TensorFlow, which want weights in an order of their own."""
    python = python_of(framework)
    if lacking(precision):
        pytest.skip(lacking(precision))
    passes(framework, python, ["lstm_ibm", "gru_ibm", "tweet_span"], precision=precision)

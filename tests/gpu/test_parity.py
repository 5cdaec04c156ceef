"""The ladder on a real GPU: float32 really is float32 there, and each other precision rounds as it should."""

import pytest

from framework_compare.parity.verify import Where, verify

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
UNSUPPORTED = [("mxnet", "bf16")]
PRECISIONS = [(framework, name) for name in ("tf32", "bf16", "fp16") for framework in FRAMEWORKS]


def climb(framework, python, models=(), **settings):
    where = Where(python=python)
    # op by op, JAX takes a compilation for each shape of each operator: minutes for a deep network. In fp16 MobileNetV2's
    # first gradients overflow at the first scale, the reference's too; a scaler skips such steps, and the ladder cannot.
    shallow = settings.get("precision") == "fp16" or (framework, settings.get("execution")) == ("jax", "eager")
    models = list(models) or (["alexnet"] if shallow else ["alexnet", "mobilenet_v2"])
    return verify([framework], models, device="cuda", image_size=64, fresh=True, where=where, **settings)


@pytest.mark.parametrize("execution", ["eager", "graph"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_float32_passes_every_level(framework, execution, python_of):
    for parity in climb(framework, python_of(framework), execution=execution):
        assert parity.status == "passed", f"{parity.model}: {parity.column()} {parity.worst}"


@pytest.mark.parametrize("framework, precision", [pair for pair in PRECISIONS if pair not in UNSUPPORTED])
def test_each_precision_passes_by_its_own_yardstick(framework, precision, python_of, lacking):
    python = python_of(framework)
    if lacking(precision):
        pytest.skip(lacking(precision))
    for parity in climb(framework, python, precision=precision):
        assert parity.status == "passed", f"{parity.model}: {parity.column()} {parity.worst}"
        assert parity.remark == ""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_padded_average_pools_pass(framework, python_of):
    """PyTorch 2.11's own kernel for channels_last images on a GPU puts their gradients in wrong places."""
    for parity in climb(framework, python_of(framework), ["tiny_cnn"]):
        assert parity.status == "passed", f"{parity.model}: {parity.column()} {parity.worst}"


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_decoder_passes_in_bf16(framework, python_of, lacking):
    """Its attention is fused there: PyTorch's own kernel, cuDNN's in JAX."""
    python = python_of(framework)
    if lacking("bf16"):
        pytest.skip(lacking("bf16"))
    for parity in climb(framework, python, ["gpt_nano"], precision="bf16"):
        assert parity.status == "passed", f"{parity.model}: {parity.column()} {parity.worst}"


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_recurrent_layers_pass(framework, precision, python_of, lacking):
    """They are cuDNN's in PyTorch and TensorFlow, which want weights in an order of their own."""
    python = python_of(framework)
    if lacking(precision):
        pytest.skip(lacking(precision))
    for parity in climb(framework, python, ["lstm_ibm", "gru_ibm", "tweet_span"], precision=precision):
        assert parity.status == "passed", f"{parity.model}: {parity.column()} {parity.worst}"

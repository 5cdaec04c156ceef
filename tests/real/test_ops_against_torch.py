"""The oracle's recurrent layers and other ops of sequences against torch's own, in float64."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import rounding_bounds

from framework_compare.environments import managed
from framework_compare.graph import Node
from framework_compare.parity.network.oracle import OPS, Mode

SCRIPT = """
import sys
import numpy
import torch

asked = {name: torch.tensor(array) for name, array in numpy.load(sys.argv[1]).items()}
answers = {}


def answer(name, y, **arrays):
    y.backward(asked[name + "_upstream"])
    answers[name] = y.detach().numpy()
    answers.update({f"{name}_{key}": array.grad.numpy() for key, array in arrays.items()})


def leaf(name):
    return asked[name].clone().requires_grad_()


def recurrent(name, layer):
    x, layer = leaf("x"), layer(6, 4, batch_first=True).double()
    with torch.no_grad():
        layer.weight_ih_l0.copy_(asked[name + "_weight_ih"])
        layer.weight_hh_l0.copy_(asked[name + "_weight_hh"])
        one_bias = name == "LSTM"
        layer.bias_ih_l0.copy_(asked[name + ("_bias" if one_bias else "_bias_ih")])
        layer.bias_hh_l0.copy_(0 * layer.bias_hh_l0 if one_bias else asked[name + "_bias_hh"])
    biases = {"bias": layer.bias_ih_l0} if one_bias else {"bias_ih": layer.bias_ih_l0, "bias_hh": layer.bias_hh_l0}
    answer(name, layer(x)[0], input=x, weight_ih=layer.weight_ih_l0, weight_hh=layer.weight_hh_l0, **biases)


recurrent("LSTM", torch.nn.LSTM)
recurrent("GRU", torch.nn.GRU)
x, weight, bias = leaf("x"), leaf("Conv1d_weight"), leaf("Conv1d_bias")
y = torch.nn.functional.conv1d(x.transpose(1, 2), weight, bias, padding=1).transpose(1, 2)
answer("Conv1d", y, input=x, weight=weight, bias=bias)
x, weight, bias = leaf("x"), leaf("LayerNorm_weight"), leaf("LayerNorm_bias")
answer("LayerNorm", torch.nn.functional.layer_norm(x, (6,), weight, bias, 1e-5), input=x, weight=weight, bias=bias)
x, weight = leaf("x"), leaf("RMSNorm_weight")
answer("RMSNorm", torch.nn.functional.rms_norm(x, (6,), weight, 1e-5), input=x, weight=weight)
numpy.savez(sys.argv[2], **answers)
"""
NODES = {
    "LSTM": Node("layer", "LSTM", ("input",), {"input_size": 6, "hidden_size": 4}),
    "GRU": Node("layer", "GRU", ("input",), {"input_size": 6, "hidden_size": 4}),
    "Conv1d": Node(
        "layer", "Conv1d", ("input",), {"in_channels": 6, "out_channels": 4, "kernel": 3, "padding": 1, "bias": True}
    ),
    "LayerNorm": Node("layer", "LayerNorm", ("input",), {"features": 6, "eps": 1e-5}),
    "RMSNorm": Node("layer", "RMSNorm", ("input",), {"features": 6, "eps": 1e-5}),
}
SHAPES = {
    "LSTM": {"weight_ih": (16, 6), "weight_hh": (16, 4), "bias": (16,)},
    "GRU": {"weight_ih": (12, 6), "weight_hh": (12, 4), "bias_ih": (12,), "bias_hh": (12,)},
    "Conv1d": {"weight": (4, 6, 3), "bias": (4,)},
    "LayerNorm": {"weight": (6,), "bias": (6,)},
    "RMSNorm": {"weight": (6,)},
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """What was asked and what torch answers, by name."""
    folder, rng = tmp_path_factory.mktemp("ops"), np.random.default_rng(0)
    asked = {"x": rng.standard_normal((2, 5, 6))}
    for name, shapes in SHAPES.items():
        asked.update({f"{name}_{key}": rng.standard_normal(shape) for key, shape in shapes.items()})
        asked[f"{name}_upstream"] = rng.standard_normal((2, 5, 6 if name.endswith("Norm") else 4))
    np.savez(folder / "asked.npz", **asked)
    (folder / "script.py").write_text(SCRIPT)
    python = managed.ensure("torch").python
    files = [str(folder / name) for name in ("script.py", "asked.npz", "answers.npz")]
    subprocess.run([str(Path(python)), *files], check=True, timeout=300)
    return asked, dict(np.load(files[2]))


def answered(name, asked, dtype):
    """What the oracle's op answers: its output, and the gradients by name."""
    given = {key: array.astype(dtype) for key, array in asked.items()}
    weights = {key: given[f"{name}_{key}"] for key in SHAPES[name]}
    y, backward = OPS[name](NODES[name], weights, (given["x"],), Mode(True))
    (dx,), gradients = backward(given[f"{name}_upstream"])
    return {name: y, f"{name}_input": dx, **{f"{name}_{key}": one for key, one in gradients.items()}}


@pytest.mark.parametrize("name", NODES)
def test_an_op_is_torchs(compared, name):
    asked, answers = compared
    rounded = answered(name, asked, np.float32)
    for key, found in answered(name, asked, np.float64).items():
        assert np.abs(found - answers[key]).max() <= rounding_bounds.of_digits(found, rounded[key]), key

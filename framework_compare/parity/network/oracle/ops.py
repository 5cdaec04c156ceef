"""The definition of every op, by the name that graphs have for it."""

from __future__ import annotations

from typing import Dict

from framework_compare.parity.network.oracle import (
    attention,
    circuit,
    elementwise,
    features,
    image_ops,
    sequences,
)
from framework_compare.parity.network.oracle.op import Op

OPS: Dict[str, Op] = {
    "Conv2d": image_ops.conv2d,
    "BatchNorm2d": image_ops.batchnorm2d,
    "ReLU": elementwise.relu,
    "ReLU6": elementwise.relu6,
    "MaxPool2d": image_ops.maxpool2d,
    "AdaptiveAvgPool2d": image_ops.adaptive_avgpool2d,
    "GlobalAvgPool": image_ops.global_avgpool,
    "Flatten": features.flatten,
    "Linear": features.linear,
    "Dropout": elementwise.dropout,
    "Add": elementwise.add,
    "Mul": elementwise.mul,
    "Concat": features.concat,
    "Split": features.part,
    "Slice": features.part,
    "AvgPool2d": image_ops.avgpool2d,
    "Tanh": elementwise.tanh,
    "Sigmoid": elementwise.sigmoid,
    "SiLU": elementwise.silu,
    "HardSigmoid": elementwise.hardsigmoid,
    "HardSwish": elementwise.hardswish,
    "GELU": elementwise.gelu,
    "StochasticDepth": elementwise.stochastic_depth,
    "Embedding": sequences.embedding,
    "LSTM": sequences.lstm,
    "GRU": sequences.gru,
    "Reverse": sequences.reverse,
    "Last": sequences.select,
    "Select": sequences.select,
    "Conv1d": sequences.conv1d,
    "LayerNorm": features.layernorm,
    "Maxout": features.maxout,
    "Quanv2d": circuit.quanv2d,
    "Parameter": features.parameter,
    "Tokens": image_ops.tokens,
    "ChannelShuffle": image_ops.channel_shuffle,
    "Attention": attention.attention,
    "Pad": image_ops.pad,
    "Roll": image_ops.roll,
    "Windows": attention.windows,
    "FromWindows": attention.from_windows,
    "RelativeBias": attention.relative_bias,
}

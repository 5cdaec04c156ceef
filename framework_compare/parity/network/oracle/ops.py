"""The definition of every op, by the name that graphs have for it."""

from typing import Dict

from framework_compare.parity.network.oracle import (
    attention,
    circuit,
    elementwise,
    features,
    image_ops,
    moves,
    primitives,
    sequences,
)
from framework_compare.parity.network.oracle.op import Op

OPS: Dict[str, Op] = {
    **dict.fromkeys(elementwise.UNARY, elementwise.unary),
    **dict.fromkeys(elementwise.BINARY, elementwise.binary),
    **dict.fromkeys(moves.MOVES, moves.move),
    "Conv2d": image_ops.conv2d,
    "BatchNorm2d": image_ops.batchnorm2d,
    "MaxPool2d": image_ops.maxpool2d,
    "AvgPool2d": image_ops.avgpool2d,
    "AdaptiveAvgPool2d": image_ops.adaptive_avgpool2d,
    "GlobalAvgPool": image_ops.global_avgpool,
    **dict.fromkeys(("Linear", "Unembedding"), features.linear),
    **dict.fromkeys(("LayerNorm", "RMSNorm"), features.norm),
    "Rotary": sequences.rotary,
    "Maxout": features.maxout,
    "Concat": features.concat,
    "Parameter": features.parameter,
    "Dropout": elementwise.dropout,
    "StochasticDepth": elementwise.dropout,
    "GELU": elementwise.gelu,
    "Pad": moves.pad,
    "Embedding": sequences.embedding,
    "LSTM": sequences.lstm,
    "GRU": sequences.gru,
    "Conv1d": sequences.conv1d,
    "Attention": attention.attention,
    "RelativeBias": attention.relative_bias,
    "Quanv2d": circuit.quanv2d,
    **primitives.OPS,
}

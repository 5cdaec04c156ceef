"""The layer graph in numpy, forward and backward: what every framework is measured against.

In float64 it is the reference, in float32 the yardstick: what rounding alone does to the same network. Clear rather
than fast; convolutions go through im2col and BLAS. Each op is one function (node, weights, inputs, mode) that returns
its output and a function from the output's gradient to the gradients of its inputs and of its parameters. These are
written by hand: a yardstick needs to say where a precision rounds in the backward pass, too, and in which order it sums,
which a library that differentiates decides by itself.

The folder needs the graph alone, so that tests can hand it to a worker as a framework.
"""

from framework_compare.parity.network.oracle.losses import LOSSES
from framework_compare.parity.network.oracle.network import OPS, Oracle
from framework_compare.parity.network.oracle.op import Mode
from framework_compare.parity.network.oracle.optimizers import OPTIMIZERS

__all__ = ["LOSSES", "OPS", "OPTIMIZERS", "Mode", "Oracle"]

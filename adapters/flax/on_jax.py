"""Flax on JAX: the graph as an nnx.Module of Flax's own layers where it has them, functions of JAX for the rest.

A step is nnx.value_and_grad and nnx.Optimizer in an nnx.jit, as Flax's guides train.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from framework_compare.adapters.common.network import identifier
from framework_compare.adapters.jax import network as plain
from framework_compare.adapters.jax.trainer import JaxTrainer
from framework_compare.graph import Graph, Node, evaluate
from framework_compare.graph.lowering import UNEVEN
from framework_compare.graph.window import Window
from framework_compare.protocol import Batch, Replicas, TrainConfig


class Network(plain.Network):
    """`model`, the nnx.Module, whose layers have the names of the graph's, and `paths` to its variables by graph name.

    Arrays lie as in the plain adapter, channels last, as in Flax; only kernels of one axis differ.
    """

    def __init__(self, jax: Any, nnx: Any, graph: Graph, seed: int) -> None:
        super().__init__(jax, graph, dtype="float32", layout="NHWC", shifts=False)
        self.nnx = nnx
        arrays = {node.arrays: graph.parameters_of(node) for node in graph.nodes}
        self._series = {f"{node.arrays}.weight" for node in graph.nodes if node.op == "Conv1d"}
        rngs, layers = nnx.Rngs(seed), {}
        for node in self.program.nodes:
            name, own = identifier(node.arrays), arrays.get(node.arrays)
            if name in layers:
                continue
            if node.op in LAYERS:
                layers[name] = LAYERS[node.op](self, node, rngs)
            elif own:  # arrays alone, of an op that Flax has no layer for
                layers[name] = _module(nnx, {one.part: nnx.Param(np.zeros(one.shape, np.float32)) for one in own})
        self.model = _module(nnx, layers)
        self.paths = {}
        for name, own in arrays.items():
            for array in own:
                names = _NAMES.get(type(layers[identifier(name)]).__name__, {})
                self.paths[array.name] = (identifier(name), *names.get(array.part, array.part).split("."))

    def _moved(self, name: str, array: np.ndarray, axes: Tuple[int, ...]) -> np.ndarray:
        return array.transpose(2, 1, 0) if name in self._series else super()._moved(name, array, axes)

    def zeros(self, name: str, rngs: Any) -> Dict[str, Any]:
        """Initial values of a layer, which are loaded later: drawn by chance each shape would be compiled for."""
        return {f"{name}_init": self.nnx.initializers.zeros_init(), "rngs": rngs}

    def outputs(self, model: Any, images: Any) -> Any:
        """Float32 logits of a view of the model, which is in training or in evaluation."""

        def apply(node: Node, *inputs: Any) -> Any:
            layer: Any = getattr(model, identifier(node.arrays), None)
            if node.op in plain.FUNCTIONS:
                return plain.FUNCTIONS[node.op](self.jax, node.attrs, *inputs)
            if node.op == "Unembedding":
                return layer.attend(*inputs)
            if node.op in LAYERS:
                return layer(*inputs)
            own = {part: getattr(layer, part)[...] for part in self._parts.get(node.arrays, ())}
            return plain.LAYERS[node.op](self, node, own, *inputs, key=None)

        return evaluate(self.program, apply, images).astype("float32")


def _module(nnx: Any, parts: Mapping[str, Any]) -> Any:
    class Module(nnx.Module):
        def __init__(self) -> None:
            for name, part in parts.items():
                setattr(self, name, part)

    return Module()


# The variables of Flax's layers by the graph's names, in which a layer of a layer is after a dot.
_NORM = {"weight": "scale", "running_mean": "mean", "running_var": "var"}
_NAMES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("Conv", "Linear"), {"weight": "kernel"}),
    **dict.fromkeys(("BatchNorm", "LayerNorm", "RMSNorm", "GroupNorm"), _NORM),
    "Embed": {"weight": "embedding"},
    "RNN": {
        **{f"weight_{side}h": f"cell.dense_{side}.kernel" for side in "ih"},
        **{f"bias_{side}h": f"cell.dense_{side}.bias" for side in "ih"},
        "bias": "cell.dense_h.bias",
    },
}


def conv(net: Network, node: Node, rngs: Any) -> Any:
    a = node.attrs
    how = {"kernel_size": (a["kernel"],), "padding": [(a["padding"],) * 2]}
    if node.op != "Conv1d":
        window = Window.of(a)
        how = {"kernel_size": window.kernel, "strides": window.stride, "padding": window.pads}
        how.update(kernel_dilation=window.dilation, feature_group_count=a["groups"])
    return net.nnx.Conv(a["in_channels"], a["out_channels"], use_bias=a["bias"], **how, **net.zeros("kernel", rngs))


def batchnorm(net: Network, node: Node, rngs: Any) -> Any:
    class BatchNorm(net.nnx.BatchNorm):  # type: ignore[name-defined]
        """Flax keeps the biased running variance; the graph the unbiased one, n / (n - 1) times the batch's.

        Its fast variance is a difference of means of squares: too far off in float32 for MobileNetV2's last layers.
        """

        def __call__(self, x: Any, **how: Any) -> Any:
            kept = self.momentum * self.var[...]
            y = super().__call__(x, **how)
            if not self.use_running_average:
                count = math.prod(x.shape[:-1])
                self.var[...] = kept + (self.var[...] - kept) * (count / max(1, count - 1))
            return y

    how = {"momentum": 1 - node.attrs["momentum"], "epsilon": node.attrs["eps"], "use_fast_variance": False}
    return BatchNorm(node.attrs["channels"], rngs=rngs, **how)


def recurrent(net: Network, node: Node, rngs: Any) -> Any:
    """A GRU of Flax's has no bias beside its state, and an LSTM one of two: where the graph has both, so have these."""
    nnx, inputs, states = net.nnx, node.attrs["input_size"], node.attrs["hidden_size"]
    kind, zeros = nnx.OptimizedLSTMCell if node.op == "LSTM" else nnx.GRUCell, net.zeros("kernel", rngs)
    cell = kind(inputs, states, **zeros, recurrent_kernel_init=zeros["kernel_init"])
    if node.op == "GRU":
        cell.dense_h = nnx.Linear(states, 3 * states, **zeros)
    elif node.attrs.get("biases", 1) == 2:
        cell.dense_i = nnx.Linear(inputs, 4 * states, **zeros)
    return nnx.RNN(cell)


def dropout(net: Network, node: Node, rngs: Any) -> Any:
    of_samples = range(1, 1 + len(net.program.shapes[node.name])) if node.op == "StochasticDepth" else ()
    return net.nnx.Dropout(node.attrs["p"], broadcast_dims=tuple(of_samples), rngs=rngs)


def _layer(kind: str, *sizes: str, zeros: str = "") -> Callable[[Network, Node, Any], Any]:
    """A layer whose sizes are attributes of a node: with an array of zeros, or a norm with an epsilon."""

    def layer(net: Network, node: Node, rngs: Any) -> Any:
        how = net.zeros(zeros, rngs) if zeros else {"epsilon": node.attrs["eps"], "rngs": rngs}
        if kind == "Linear":
            how["use_bias"] = node.attrs.get("bias", True)
        return getattr(net.nnx, kind)(*(node.attrs[size] for size in sizes), **how)

    return layer


# Of a Network, a node and random numbers for what is loaded later: an nnx.Module.
LAYERS: Dict[str, Callable[[Network, Node, Any], Any]] = {
    **dict.fromkeys(("Conv2d", UNEVEN, "Conv1d"), conv),
    **dict.fromkeys(("LSTM", "GRU"), recurrent),
    **dict.fromkeys(("Dropout", "StochasticDepth"), dropout),
    "BatchNorm2d": batchnorm,
    "Linear": _layer("Linear", "in_features", "out_features", zeros="kernel"),
    "LayerNorm": _layer("LayerNorm", "features"),
    "RMSNorm": _layer("RMSNorm", "features"),
    "GroupNorm": _layer("GroupNorm", "channels", "groups"),
    "Embedding": _layer("Embed", "num_embeddings", "embedding_dim", zeros="embedding"),
}
# What of layers a view sets, and the ops of a program that have such layers.
MODES = {"deterministic": {"Dropout", "StochasticDepth"}, "use_running_average": {"BatchNorm2d"}}
EXECUTIONS = {"default": "nnx.jit", "compiled": "nnx.cached_partial of an nnx.jit", "eager": "eager"}


class FlaxTrainer(JaxTrainer):
    """Two views of one model share its variables: of training, and of evaluation."""

    name = "flax"
    declared = JaxTrainer.declared._replace(
        executions={"cpu": frozenset(EXECUTIONS)},
        precisions={"cpu": frozenset({"fp32"})},
        replicas={},
        several_nodes=False,
        generation=frozenset(),
        why={"cuda": "no environment for Flax on a GPU is pinned"},
    )

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        super().__init__(config)
        from flax import nnx

        self.nnx, self.layout, self._shifts = nnx, "NHWC", False  # windows are XLA's

    def settings(self) -> Dict[str, Any]:
        found = super().settings()
        execution, optimizer = EXECUTIONS[self.config.execution], f"nnx.Optimizer of {found['optimizer']}"
        return {**found, "execution": execution, "optimizer": optimizer, "backend": f"jax {self.jax.__version__}"}

    def build(self, graph: Graph) -> None:
        nnx = self.nnx
        self._leaves = None  # the state of the plain trainer, which this one keeps in the model
        self._network = Network(self.jax, nnx, graph, self.config.seed & 0xFFFFFFFF)
        self._model = self._network.model
        self._chances = self.jax.tree.map(self.jax.numpy.copy, nnx.state(self._model, nnx.RngState))
        self._make_task(graph)
        self._transformation = self._optimizer
        trained = {self._network.paths[name] for name in self._trainable}
        self._wrt = nnx.All(nnx.Param, lambda path, value: tuple(path) in trained)
        ops = {node.op for node in self._network.program.nodes}
        modes = [name for name, of in MODES.items() if of & ops]
        self._training, self._evaluating = (nnx.view(self._model, **dict.fromkeys(modes, of)) for of in (False, True))
        self._jit = nnx.jit if self.config.execution != "eager" else lambda function: function
        self._gradients_of = self._jit(self._value_and_gradients)
        self._evaluate = self._jit(self._network.outputs)
        self.load_weights({p.name: np.zeros(p.shape, np.float32) for p in graph.parameters()})

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        nnx, jnp = self.nnx, self.jax.numpy
        for name, array in weights.items():
            self._variable(name).set_value(jnp.array(self._network.to_native(name, array)))
        nnx.update(self._model, self.jax.tree.map(jnp.copy, self._chances))
        self._optimizer = nnx.Optimizer(self._model, self._transformation, wrt=self._wrt)
        for part in (self._model, self._optimizer):  # placed, as results of a step are: else that is compiled twice
            nnx.update(part, self.jax.device_put(nnx.state(part), self._device))
        bound = nnx.cached_partial if self.config.execution == "compiled" else functools.partial
        self._step = bound(self._jit(self._step_once), self._training, self._optimizer)

    def weights(self) -> Dict[str, np.ndarray]:
        return self._to_graph({name: self._variable(name)[...] for name in self._network.paths})

    def _variable(self, name: str) -> Any:
        return functools.reduce(getattr, self._network.paths[name], self._model)

    def _value_and_gradients(self, model: Any, images: Any, labels: Any) -> Any:
        def loss_of(model: Any) -> Any:
            return self._loss_of(self._network.outputs(model, images), labels)

        return self.nnx.value_and_grad(loss_of, argnums=self.nnx.DiffState(0, self._wrt))(model)

    def _step_once(self, model: Any, optimizer: Any, images: Any, labels: Any) -> Any:
        loss, gradients = self._value_and_gradients(model, images, labels)
        optimizer.update(model, gradients)
        return loss

    def train_step(self, batch: Batch) -> Any:
        self._loss_seen = self._step(batch.images, batch.labels)
        return self._loss_seen

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        kept = self.jax.tree.map(lambda array: array, self.nnx.state(self._model))  # statistics move with each pass
        _, gradients = self._gradients_of(self._training, batch.images, batch.labels)
        self.nnx.update(self._model, kept)
        found = dict(self.nnx.to_flat_state(gradients))
        return self._to_graph({name: found[self._network.paths[name]][...] for name in self._trainable})

    def infer(self, batch: Batch) -> Any:
        self._loss_seen = self._evaluate(self._evaluating, batch.images)
        return self._loss_seen

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        return np.asarray(self._evaluate(self._training if training else self._evaluating, batch.images))

    def synchronize(self) -> None:
        self.jax.block_until_ready((self.nnx.state(self._model), self._loss_seen))

    def release(self) -> None:
        super().release()
        self._model = self._training = self._evaluating = self._optimizer = self._gradients_of = None

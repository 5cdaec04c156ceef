"""One network in Flax NNX: nnx.value_and_grad and nnx.Optimizer in an nnx.jit, as Flax's guides train."""

from __future__ import annotations

import functools
from typing import Any, Dict, Mapping, Optional

import numpy as np

from framework_compare.adapters.common.trainer import NATIVE_OPTIMIZERS
from framework_compare.adapters.flax.network import OPS, Network
from framework_compare.adapters.jax.pipeline import PROCESSES_FROM, import_part
from framework_compare.adapters.jax.tasks import LOSSES, NAMES, make_optimizer
from framework_compare.adapters.jax.trainer import JaxTrainer
from framework_compare.graph import Graph, trainable_names
from framework_compare.protocol import UPDATES, Batch, Declared, Replicas, TrainConfig

# What of layers a view sets, and the ops of a program that have such layers.
MODES = {"deterministic": {"Dropout", "StochasticDepth"}, "use_running_average": {"BatchNorm2d"}}
EXECUTIONS = {
    "default": "nnx.jit",
    "compiled": "nnx.cached_partial of an nnx.jit",
    "eager": "eager",
}


class FlaxTrainer(JaxTrainer):
    """Two views of one model share its variables: of training, and of evaluation."""

    name = "flax"
    declared = Declared(
        ops=OPS,
        losses=frozenset(LOSSES),
        optimizers=frozenset(NAMES) | NATIVE_OPTIMIZERS,
        executions={"cpu": frozenset(EXECUTIONS)},
        precisions={"cpu": frozenset({"fp32"})},
        several_inputs=True,
        updates=frozenset(UPDATES),
        why={"cuda": "no environment for Flax on a GPU is pinned"},
    )

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        super().__init__(config)
        from flax import nnx

        self.nnx = nnx
        self.layout = "NHWC"

    def settings(self) -> Dict[str, Any]:
        config = self.config
        return {
            "execution": EXECUTIONS[config.execution],
            "backend": f"jax {self.jax.__version__}",
            "layout": self.layout,
            "optimizer": f"nnx.Optimizer of optax, {NAMES.get(config.optimizer, config.optimizer)}",
            "threads": config.threads,
            "loader_workers": "threads" if config.loader_workers < PROCESSES_FROM else "processes",
        }

    def build(self, graph: Graph) -> None:
        nnx, config = self.nnx, self.config
        self._leaves: Any = None  # the state of the plain trainer, which this one keeps in the model
        self._network = Network(self.jax, nnx, graph, config.seed & 0xFFFFFFFF)
        self._model = self._network.model
        self._chances = self.jax.tree.map(self.jax.numpy.copy, nnx.state(self._model, nnx.RngState))
        self._transformation = make_optimizer(self.jax, import_part("optax", "its optimiser"), config)
        self._loss_of = functools.partial(LOSSES[graph.task.loss], import_part("optax", "its losses"))
        self._target_type = np.int32 if graph.task.target.dtype.startswith("int") else np.float32
        self._trained = trainable_names(graph)
        frozen = self._network.frozen
        self._wrt = nnx.All(nnx.Param, lambda path, value: path[0] not in frozen)
        ops = {node.op for node in self._network.program.nodes}
        modes = [name for name, of in MODES.items() if of & ops]
        views = (nnx.view(self._model, **dict.fromkeys(modes, evaluates)) for evaluates in (False, True))
        self._training, self._evaluating = views
        self._jit = nnx.jit if config.execution != "eager" else lambda function: function
        self._gradients_of = self._jit(self._value_and_gradients)
        self._evaluate = self._jit(lambda model, images: model(images))
        self.load_weights({p.name: np.zeros(p.shape, np.float32) for p in graph.parameters()})

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        nnx, jnp = self.nnx, self.jax.numpy
        for name, array in weights.items():
            self._variable(name).set_value(jnp.array(self._network.to_native(name, array)))
        nnx.update(self._model, self.jax.tree.map(jnp.copy, self._chances))
        self._optimizer = nnx.Optimizer(self._model, self._transformation, wrt=self._wrt)
        bound = nnx.cached_partial if self.config.execution == "compiled" else functools.partial
        self._step = bound(self._jit(self._step_once), self._training, self._optimizer)

    def weights(self) -> Dict[str, np.ndarray]:
        return self._to_graph({name: self._variable(name)[...] for name in self._network.paths})

    def _variable(self, name: str) -> Any:
        return functools.reduce(getattr, self._network.paths[name], self._model)

    def _value_and_gradients(self, model: Any, images: Any, labels: Any) -> Any:
        def loss_of(model: Any) -> Any:
            return self._loss_of(model(images), labels)

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
        return self._to_graph({name: found[self._network.paths[name]][...] for name in self._trained})

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

"""One model in MXNet: devices and precisions, gluon.Trainer's step, arrays in and out."""

import ctypes
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

import numpy as np

from framework_compare.adapters.common import trainer as common
from framework_compare.adapters.mxnet import replicas as data_parallel
from framework_compare.adapters.mxnet.network import OPS, freeze, make_network, parameters_of
from framework_compare.adapters.mxnet.pipeline import open_loader
from framework_compare.adapters.mxnet.tasks import LOSSES, NAMES, clip, forget, make_optimizer, optimizer_name
from framework_compare.errors import Unsupported
from framework_compare.graph import Graph
from framework_compare.graph.optimizer import DECAYED
from framework_compare.protocol import UPDATES, Batch, Declared, ImageFiles, ProfileRow, Replicas, TrainConfig

# From so many numbers on OpenMP copies arrays that Python hands over, on the calling thread: its pool beside the
# engine's makes more threads than cores, for which GNU OpenMP spins far less before it sleeps, at each of an operator's
# barriers: MobileNetV2 at batch 1 took 200 ms a step for 125 on 2 cores (1.9.1).
_ONE_POOL = {"MXNET_CPU_PARALLEL_SIZE": "2000000000"}


class MXNetTrainer(common.TrainerDefaults):
    name = "mxnet"
    layout = "NCHW"
    declared = Declared(
        ops=OPS,
        losses=frozenset(LOSSES),
        optimizers=frozenset(NAMES) | common.NATIVE_OPTIMIZERS - {"native adamw"},
        # MXNet 1.9 has no optimising compiler for training
        executions=dict.fromkeys(("cpu", "cuda"), frozenset({"default", "eager", "graph"})),
        # nor kernels for bf16 on GPUs
        precisions={"cpu": frozenset({"fp32"}), "cuda": frozenset({"fp32", "tf32", "fp16"})},
        untested={"cuda": frozenset({"fp32", "tf32", "fp16"})},
        replicas=dict.fromkeys(("cpu", "cuda"), frozenset({"default", "eager", "graph"})),
        several_inputs=True,
        updates=frozenset(UPDATES),
        why={"native adamw": "MXNet has no optimizer of that name"},
    )

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        threads, on_gpu = str(config.threads), config.device != "cpu"
        variables = {
            "OMP_NUM_THREADS": threads,  # read once, when libmxnet is loaded
            "OPENBLAS_NUM_THREADS": threads,
            "MXNET_CPU_WORKER_NTHREADS": "1",
            "MXNET_CPU_PRIORITY_NTHREADS": "1",
        }
        if on_gpu:
            variables["MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION"] = "0"  # float32 stays float32
            if config.precision != "tf32":
                variables["NVIDIA_TF32_OVERRIDE"] = "0"  # MXNet has no switch of its own; this is that of the libraries
        if config.tuning == "recommended":
            # idle threads of the wheel's GNU OpenMP spin on cores that the loader's processes need: 2,580 small images
            # took 45 s with two of them, 6 s so; training steps were as fast (1.9.1)
            variables["GOMP_SPINCOUNT"] = "10000"
            # on a GPU the fastest algorithm, whatever memory it takes
            variables.update({"MXNET_CUDNN_AUTOTUNE_DEFAULT": "2"} if on_gpu else _ONE_POOL)
        return variables

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        self._on_gpu = config.device != "cpu"
        if self._on_gpu:
            _load_cuda_libraries()
        try:
            import mxnet
        except OSError as error:
            raise Unsupported(f"device {config.device!r}: MXNet's library does not load here ({error})") from None
        self.mx, self.config, self._replicas = mxnet, config, replicas
        numbers = [common.gpu_number(name) for name in (replicas.devices if replicas else (config.device,))]
        self._index = max(numbers)
        self._has_cuda = self._on_gpu and bool(mxnet.runtime.Features().is_enabled("CUDA"))
        self._gpus = mxnet.context.num_gpus() if self._has_cuda else 0
        on = mxnet.gpu if self._index < self._gpus else mxnet.cpu
        # replicas on a CPU have contexts of their own, which share its cores
        self._contexts = [on(n) for n in (numbers if self._on_gpu else range(len(numbers)))]
        self._context = self._contexts[0]
        self._target_type = "int32"  # of labels, until a network for another task is built
        self._amp = None
        if self._gpus and config.precision == "fp16":
            from mxnet.contrib import amp

            self._amp = amp
            amp.init(target_dtype="float16")
        mxnet.random.seed(config.seed)

    def unsupported(self) -> Optional[str]:
        config = self.config
        if config.clip_norm and (self._replicas or config.precision == "fp16"):
            return "clip_norm: this adapter clips on one device, and not what a loss scale has multiplied"
        if self._on_gpu and self._index >= self._gpus:
            here = f"device {config.device!r}: MXNet {self.mx.__version__}"
            if not self._has_cuda:
                return f"{here} is a build for CPUs; install mxnet-cu112 in that interpreter, the last CUDA build"
            return f"{here} is built with CUDA and sees {self._gpus} GPUs here"
        return None

    def settings(self) -> Dict[str, Any]:
        return {
            "execution": "eager" if self.config.execution == "eager" else "graph",
            "hybridize": self._hybridize,
            "layout": self.layout,
            "optimizer": optimizer_name(self.config),
            "attention": "batch_dot and softmax, causal by its lengths: MXNet's fused kernels take another order",
            "running_variance": "biased",
            "threads": self.config.threads,
            **({"replicas": f"gluon.Trainer, kvstore device, {common.OWN_STATISTICS}"} if self._replicas else {}),
            **({"tf32": self.config.precision == "tf32", "amp": self._amp is not None} if self._on_gpu else {}),
        }

    @property
    def _hybridize(self) -> Optional[Dict[str, bool]]:
        """Arguments of hybridize, or None: the tutorial gives none, the performance guide both static ones."""
        if self.config.execution == "eager":
            return None
        static = self.config.execution == "graph" or self.config.tuning == "recommended"
        return {"static_alloc": True, "static_shape": True} if static else {}

    def build(self, graph: Graph) -> None:
        config, mx = self.config, self.mx
        self._network = make_network(mx, graph)
        self._network.initialize(mx.init.Zero(), ctx=self._contexts)
        if self._hybridize is not None:
            self._network.hybridize(**self._hybridize)
        self._parameters = parameters_of(self._network)
        freeze(self._parameters, graph)
        self._reordered = False
        self._loss = LOSSES[graph.task.named_loss](mx, **graph.task.loss_options)
        self._target_type = "int32" if graph.task.target.dtype.startswith("int") else "float32"
        given = (self._network.collect_params(), make_optimizer(mx, config))
        self._optimizer = data_parallel.make_trainer(mx, *given) if self._replicas else mx.gluon.Trainer(*given)
        if self._amp:
            self._amp.init_trainer(self._optimizer)
        self._updates = common.Updates(config)
        if config.accumulation > 1:
            for parameter in self._trained():
                parameter.grad_req = "add"
        if config.optimizer == "adamw" or config.weight_decay:
            # gluon leaves biases and BatchNorm out of weight decay; torch, which the graph follows, decays them with SGD
            for parameter in self._parameters.values():
                parameter.wd_mult = float(config.optimizer != "adamw" or len(parameter.shape) >= DECAYED)

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, array in weights.items():
            if self._reordered:
                self._parameters[name].set_data(self.mx.nd.array(array))
            else:
                for held in self._parameters[name].list_data():
                    held[:] = array
        self._reordered = False
        self._updates.forget()
        self._clear()
        for updater in self._optimizer._updaters or ():
            for state in updater.states.values():
                for momentum in state if isinstance(state, (list, tuple)) else [state]:
                    if momentum is not None:
                        momentum[:] = 0
        forget(self._optimizer.optimizer)
        if self._amp:  # back to its first scale
            self._optimizer._amp_loss_scaler = type(self._optimizer._amp_loss_scaler)()
        self.mx.nd.waitall()

    def weights(self) -> Dict[str, np.ndarray]:
        return {name: parameter.data(self._context).asnumpy() for name, parameter in self._parameters.items()}

    def to_device_batch(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        nd, context = self.mx.nd, None if self._replicas else self._context
        inputs = common.each(lambda array: nd.array(array, ctx=context), images)
        target = nd.array(labels, dtype=self._target_type, ctx=context)
        return self._split(inputs, target, len(labels)) if self._replicas else Batch(inputs, target, len(labels))

    def _split(self, images: Any, labels: Any, size: int) -> Batch:
        parts = [data_parallel.split(array, self._contexts) for array in common.arguments(images)]
        inputs = list(zip(*parts)) if isinstance(images, tuple) else parts[0]
        return Batch(inputs, data_parallel.split(labels, self._contexts), size)

    def read_batch(self, batch: Batch) -> Any:
        parts, labels = (array if self._replicas else [array] for array in batch[:2])
        labels = data_parallel.whole(labels)
        labels = labels.astype(np.int64) if labels.dtype.kind == "i" else labels
        several = [data_parallel.whole(arrays) for arrays in zip(*map(common.arguments, parts))]
        return tuple(several) if isinstance(parts[0], tuple) else several[0], labels

    def open_pipeline(self, files: ImageFiles) -> Any:
        return open_loader(self.mx, files, self.config, self._index if self._on_gpu else None, self._replicas)

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        context = self._context
        for images, labels in pipeline:
            # loader workers hand over arrays in cpu_shared memory, which a hybridised network does not take
            if self._replicas:
                yield self._split(images, labels, len(labels))
            else:
                yield Batch(images.as_in_context(context), labels.as_in_context(context), len(labels))

    def train_step(self, batch: Batch) -> Any:
        loss, gathered = self._backward(batch), self.config.accumulation
        if not self._updates.gathered():
            return loss
        rate = self._updates.rate()
        if rate is not None:
            self._optimizer.set_learning_rate(rate)
        divisor = batch.size if gathered == 1 else gathered
        if self.config.clip_norm:
            clip(self.mx, [p.grad(self._context) for p in self._trained()], self.config.clip_norm * divisor)
        self._optimizer.step(divisor)
        self._clear()
        return loss

    def _trained(self) -> List[Any]:
        return [parameter for parameter in self._parameters.values() if parameter.grad_req != "null"]

    def _clear(self) -> None:
        """Gradients that are added up begin at zero."""
        if self.config.accumulation > 1:
            for parameter in self._trained():
                parameter.zero_grad()

    def _backward(self, batch: Batch) -> Any:
        """Loss of each image, of replicas a list; gradients belong to the sum: `step` divides by the number of images."""
        with self.mx.autograd.record():
            if self._replicas:
                pairs = zip(batch.images, batch.labels)
                loss: Any = [self._loss(self._network(*common.arguments(part)), labels) for part, labels in pairs]
            else:
                loss = self._loss(self._network(*common.arguments(batch.images)), batch.labels)
            if self.config.accumulation > 1:  # of batches that may differ in size the means are added
                self.mx.autograd.backward([part / batch.size for part in (loss if self._replicas else [loss])])
                return loss
            if self._amp:
                with self._amp.scale_loss(loss, self._optimizer) as scaled:
                    self.mx.autograd.backward(scaled)
                return loss
        self.mx.autograd.backward(loss)
        return loss

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        self._clear()
        self._backward(batch)
        if self._replicas:
            self._optimizer.allreduce_grads()  # sums them
        scale = float(self._optimizer._amp_loss_scaler.loss_scale) if self._amp else 1.0
        times = np.float32((batch.size if self.config.accumulation == 1 else 1) * scale)
        trained = ((name, p) for name, p in self._parameters.items() if p.grad_req != "null")
        found = {name: p.grad(self._context).asnumpy() / times for name, p in trained}
        self._clear()
        return found

    def read_losses(self, losses: List[Any]) -> List[float]:
        if self._replicas:
            return [float(data_parallel.whole(loss).mean()) for loss in losses]
        return [float(loss.mean().asscalar()) for loss in losses]

    def infer(self, batch: Batch) -> Any:
        # in evaluation mode oneDNN puts parameters into a layout of its own, which numpy arrays cannot be copied into
        self._reordered = True
        with self.mx.autograd.predict_mode():
            if self._replicas:  # by the running statistics of the first
                parts = [[one.as_in_context(self._context) for one in common.arguments(part)] for part in batch.images]
                return self.mx.nd.concat(*(self._network(*part) for part in parts), dim=0)
            return self._network(*common.arguments(batch.images))

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        if not training:
            return self.infer(batch).asnumpy()
        with self.mx.autograd.train_mode():
            parts = batch.images if self._replicas else [batch.images]
            return data_parallel.whole([self._network(*common.arguments(part)) for part in parts])

    def synchronize(self) -> None:
        self.mx.nd.waitall()

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        from framework_compare.adapters.mxnet.profile import profile_rows

        if self._hybridize is not None:
            # operators run in bulk are counted as one, of a name that lists them
            self._network.hybridize(**self._hybridize, forward_bulk_size=1, backward_bulk_size=1)
            step()
        return profile_rows(self.mx.profiler, step, folder)

    def release(self) -> None:
        self.mx.nd.waitall()
        self._network = self._optimizer = None


def _load_cuda_libraries() -> None:
    """Load the libraries that pip put beside MXNet, those first that others need: its own looks on the system only."""
    waiting = sorted(path for folder in sys.path for path in Path(folder).glob("nvidia/*/lib/lib*.so*"))
    before: List[Path] = []
    while waiting != before:
        before, waiting = waiting, []
        for path in before:
            try:
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                waiting.append(path)

"""One model in PaddlePaddle: devices and precisions, the step and its optimizer, arrays in and out."""

import contextlib
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

import numpy as np

from framework_compare.adapters.common import trainer as common
from framework_compare.adapters.paddle import network
from framework_compare.adapters.paddle.generation import Generates
from framework_compare.adapters.paddle.pipeline import open_loader
from framework_compare.adapters.paddle.replicas import rank_environment
from framework_compare.adapters.paddle.tasks import LOSSES, NAMES, forget, make_optimizer, optimizer_name
from framework_compare.graph import Graph
from framework_compare.protocol import (
    PRECISIONS,
    UPDATES,
    Batch,
    Declared,
    ImageFiles,
    ProfileRow,
    Replicas,
    TrainConfig,
)
from framework_compare.worker.processes import keep_freed_memory


class PaddleTrainer(Generates, common.TrainerDefaults):
    name = "paddle"
    layout = "NCHW"
    declared = Declared(
        ops=network.OPS,
        losses=frozenset(LOSSES),
        optimizers=frozenset(NAMES) | common.NATIVE_OPTIMIZERS,
        # `compiled` is CINN, which its CPU package is built without, and for which this adapter has no path on a GPU
        executions=dict.fromkeys(("cpu", "cuda"), frozenset({"default", "eager", "graph"})),
        # auto_cast does nothing on a CPU
        precisions={"cpu": frozenset({"fp32"}), "cuda": frozenset(PRECISIONS)},
        untested={"cuda": frozenset(PRECISIONS)},
        replicas=dict.fromkeys(("cpu", "cuda"), frozenset({"default", "eager", "graph"})),
        several_inputs=True,
        updates=frozenset(UPDATES),
        generation=frozenset({"default", "eager"}),
    )

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        threads = str(config.threads)
        # without it, importing paddle sets OMP_NUM_THREADS to 1
        variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "FLAGS_paddle_num_threads": threads}
        if config.device != "cpu":
            if config.precision != "tf32":
                variables["NVIDIA_TF32_OVERRIDE"] = "0"  # Paddle has no public switch; this is that of the libraries
            variables["FLAGS_cudnn_exhaustive_search"] = "1" if config.tuning == "recommended" else "0"
        return variables

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        self._on_gpu = config.device != "cpu"
        self._index = common.gpu_number(config.device)
        self._replicas = replicas
        if replicas:
            os.environ.update(rank_environment(replicas, self._index if self._on_gpu else None))
        self._keeps_memory = config.tuning == "recommended" and not self._on_gpu and keep_freed_memory()
        import paddle

        self.paddle, self.config = paddle, config
        self._gpus = paddle.device.cuda.device_count() if self._on_gpu else 0
        paddle.set_device(f"gpu:{self._index}" if self._index < self._gpus else "cpu")
        paddle.seed(config.seed + (replicas.rank or 0 if replicas else 0))
        self._loaders: List[Any] = []

    def unsupported(self) -> Optional[str]:
        if not self._on_gpu:
            return None
        if self._index < self._gpus:
            capability = self.paddle.device.cuda.get_device_capability
            return common.needs_capability(self.config.precision, lambda: capability(self._index))
        here = f"device {self.config.device!r}: PaddlePaddle {self.paddle.__version__}"
        if not self.paddle.is_compiled_with_cuda():
            return f"{here} is a build for CPUs; install paddlepaddle-gpu in that interpreter"
        return f"{here} is built for CUDA {self.paddle.version.cuda()} and sees {self._gpus} GPUs here"

    def settings(self) -> Dict[str, Any]:
        return {
            "execution": "graph" if self.config.execution == "graph" else "eager",
            "layout": self.layout,
            "allocator": "keeps freed memory" if self._keeps_memory else "system default",
            "optimizer": optimizer_name(self.config),
            "attention": "scaled_dot_product_attention; products with a bias",
            "running_variance": "biased",
            **({} if self._on_gpu else {"loss_bound": 64.0}),
            "threads": self.config.threads,
            **({"replicas": f"DataParallel, {common.OWN_STATISTICS}"} if self._replicas else {}),
            **(self._gpu_settings() if self._on_gpu else {}),
        }

    def _gpu_settings(self) -> Dict[str, Any]:
        precision, version = self.config.precision, self.paddle.version
        return {
            "gpu": self.paddle.device.cuda.get_device_name(self._index),
            "cuda": version.cuda(),
            "cudnn": version.cudnn(),
            "cudnn_exhaustive_search": self.config.tuning == "recommended",
            "tf32": precision == "tf32",
            **({"auto_cast": "O1"} if precision in common.HALF_TYPES else {}),
            **common.loss_scale_settings(self.config),
        }

    def build(self, graph: Graph) -> None:
        config, paddle = self.config, self.paddle
        program = network.make_program(graph)
        layers = network.make_layers(paddle, program)
        self._arrays = network.arrays_of(program, layers)
        self._transposed = {f"{node.arrays}.weight" for node in graph.nodes if node.op == "Linear"}  # (in, out)
        untrained = network.second_biases(layers)
        for parameter in graph.parameters():
            if not parameter.trainable:
                self._arrays[parameter.name].stop_gradient = True
        self._network, self._built = network.make_network(paddle, program, layers), (graph, layers)
        # full_graph: the bytecode translator that is otherwise used fails on the loop over the graph (3.3.1)
        graphed = config.execution == "graph"
        self._call = paddle.jit.to_static(self._network, full_graph=True) if graphed else self._network
        if self._replicas:
            # its backward pass leaves the mean of the ranks' gradients; meets the other ranks the first time
            paddle.distributed.init_parallel_env()
            self._call = paddle.DataParallel(self._call)
        self._loss = LOSSES[graph.task.named_loss](paddle, **graph.task.loss_options)
        scales = self._on_gpu and config.precision == "fp16"
        self._scaler = paddle.amp.GradScaler(enable=scales, init_loss_scaling=common.LOSS_SCALE) if scales else None
        self._first_scale = self._scaler.state_dict() if self._scaler else None
        parameters = [p for p in self._network.parameters() if not any(p is bias for bias in untrained)]
        self._optimizer = make_optimizer(paddle, config, parameters)
        self._updates = common.Updates(config)
        self._clear = self._optimizer.clear_grad
        if untrained:
            self._clear = lambda: [self._optimizer.clear_grad(), *(bias.clear_gradient() for bias in untrained)]

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, array in weights.items():
            self._arrays[name].set_value(array.T if name in self._transposed else array)
        forget(self._optimizer, self.config)
        self._updates.forget()
        self._clear()
        if self._scaler:
            self._scaler.load_state_dict(self._first_scale)

    def weights(self) -> Dict[str, np.ndarray]:
        return self._of_graph({name: tensor.numpy() for name, tensor in self._arrays.items()})

    def _of_graph(self, arrays: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        return {name: np.ascontiguousarray(a.T if name in self._transposed else a) for name, a in arrays.items()}

    def to_device_batch(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        return Batch(common.each(self.paddle.to_tensor, images), self.paddle.to_tensor(labels), len(labels))

    def read_batch(self, batch: Batch) -> Any:
        return common.each(lambda tensor: tensor.numpy(), batch.images), batch.labels.numpy()

    def open_pipeline(self, files: ImageFiles) -> Any:
        self._loaders.append(open_loader(self.paddle, files, self.config, self._replicas))
        return self._loaders[-1]

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        for images, labels in pipeline:
            yield Batch(images, labels, len(labels))

    def train_step(self, batch: Batch) -> Any:
        self._set_training(True)
        loss = self._backward(batch, self.config.accumulation)
        if not self._updates.gathered():
            return loss.detach()
        rate = self._updates.rate()
        if rate is not None:
            self._optimizer.rate = rate  # of those that correct it
            self._optimizer.set_lr(rate)
        if self._scaler:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()
        self._clear()
        return loss.detach()

    def _backward(self, batch: Batch, batches: int = 1) -> Any:
        with self._auto_cast():
            loss = self._loss(self._call(*common.arguments(batch.images)), batch.labels)
        share = loss / batches if batches > 1 else loss
        (self._scaler.scale(share) if self._scaler else share).backward()
        return loss

    def _auto_cast(self) -> Any:
        dtype = common.HALF_TYPES.get(self.config.precision)
        return self.paddle.amp.auto_cast(dtype=dtype) if dtype else contextlib.nullcontext()

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        self._set_training(True)
        self._backward(batch)
        if self._scaler:
            self._scaler.unscale_(self._optimizer)
            self._scaler.update()
        held = {name: t.grad.numpy() for name, t in self._arrays.items() if not t.stop_gradient}
        self._clear()
        return self._of_graph(held)

    def infer(self, batch: Batch) -> Any:
        call = self._call if self.config.mode == "inference" else self._network
        self._set_training(False)
        with self.paddle.no_grad(), self._auto_cast():
            return call(*common.arguments(batch.images))

    def _set_training(self, training: bool) -> None:
        if self._network.training != training:  # going through all layers takes as long as a small step
            self._network.train() if training else self._network.eval()

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        if not training:
            return self.infer(batch).astype("float32").numpy()
        self._set_training(True)
        with self.paddle.no_grad(), self._auto_cast():
            return self._network(*common.arguments(batch.images)).astype("float32").numpy()

    def synchronize(self) -> None:
        """A CPU step has ended when it returns."""
        if self._replicas and self._network is not None:
            self.paddle.distributed.barrier()
        if self._on_gpu:
            self.paddle.device.synchronize()

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        from framework_compare.adapters.paddle.profile import profile_rows

        profiler = self.paddle.profiler
        targets = [profiler.ProfilerTarget.CPU]
        if self.paddle.device.is_compiled_with_cuda():
            targets.append(profiler.ProfilerTarget.GPU)
        # without a handler of our own it writes a second trace where it likes
        session = profiler.Profiler(targets=targets, on_trace_ready=lambda session: None)
        session.start()
        step()
        session.stop()
        session.export(f"{folder}/trace.json", format="json")
        trees = session.profiler_result.get_data().values()
        return [row for tree in trees for row in profile_rows(tree)[0]]

    def release(self) -> None:
        self._network = self._optimizer = self._call = self._clear = self._built = None
        self._prepared = (None, 0)
        while self._loaders:
            # a thread of the loader's own holds its iterator, so that persistent workers outlive the loader (3.3.1)
            iterator = self._loaders.pop()._iterator
            if iterator is not None:
                iterator._try_shutdown_all(1)

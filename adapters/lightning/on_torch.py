"""Lightning on PyTorch: the network of its adapter in a LightningModule, trained by `Trainer.fit`.

`fit` owns the loop, and the runner does: it runs in a thread of its own, whose loader waits for each batch of the runner's.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Dict, Iterator, Mapping, Optional

from framework_compare.adapters.torch.pipeline import import_torchvision
from framework_compare.adapters.torch.trainer import TorchTrainer
from framework_compare.graph import Graph, Schedule
from framework_compare.protocol import Batch, Replicas, TrainConfig

WITHOUT = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
MOST_BATCHES = 1 << 40  # of an epoch: a loader that knows its length is not asked for a batch ahead


class LightningTrainer(TorchTrainer):
    name = "lightning"
    declared = TorchTrainer.declared._replace(
        executions={"cpu": frozenset({"default", "fit"})},
        precisions={"cpu": frozenset({"fp32"})},
        replicas={},
        several_nodes=False,
        why={"cuda": "no environment for Lightning on a GPU is pinned", "eager": "Trainer.fit owns the loop"},
    )

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        super().__init__(config)
        import_torchvision(self.torch)  # before Lightning's metrics import it
        import lightning

        self.lightning = lightning
        self._fit: Optional[Fit] = None

    def settings(self) -> Dict[str, Any]:
        execution = f"Trainer.fit without {', '.join(WITHOUT)}"
        return {**super().settings(), "execution": execution, "backend": f"torch {self.torch.__version__}"}

    def build(self, graph: Graph) -> None:
        self._end()
        super().build(graph)

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self._end()  # an optimizer's state is that of a fit
        super().load_weights(weights)

    def train_step(self, batch: Batch) -> Any:
        self._set_training(True)
        self._fit = self._fit or Fit(self.lightning, self.config, self._trained, self._loss_of, self._optimizer)
        return self._fit.step(batch)

    def _end(self) -> None:
        if self._fit:
            self._fit.end()
        self._fit = None

    def release(self) -> None:
        self._end()
        super().release()


class Fit:
    """A `Trainer.fit` in a thread, batch by batch."""

    def __init__(self, lightning: Any, config: TrainConfig, network: Any, loss_of: Any, optimizer: Any) -> None:
        schedule = Schedule.of(config)
        batches = self._batches = queue.SimpleQueue[Any]()  # None is the end
        losses = self._losses = queue.SimpleQueue[Any]()  # or what was raised

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def configure_optimizers(self) -> Any:
                if schedule.is_constant:
                    return optimizer
                from torch.optim.lr_scheduler import LambdaLR

                each_update = {"scheduler": LambdaLR(optimizer, schedule.share), "interval": "step"}
                return {"optimizer": optimizer, "lr_scheduler": each_update}

            def training_step(self, batch: Any, number: int) -> Any:
                loss = loss_of(*batch)
                self.seen = loss.detach()  # the outputs of a batch have a share of it where batches are gathered
                return loss

            def on_train_batch_end(self, outputs: Any, batch: Any, number: int) -> None:
                losses.put(self.seen)

        class Loader:
            def __len__(self) -> int:
                return MOST_BATCHES

            def __iter__(self) -> Iterator[Any]:
                return iter(batches.get, None)

        def run() -> None:
            try:
                from lightning.pytorch.plugins import environments

                how = {"gradient_clip_val": config.clip_norm or None, "accumulate_grad_batches": config.accumulation}
                how.update(dict.fromkeys(WITHOUT, False))
                alone = environments.LightningEnvironment()  # else it looks for a cluster, and MPI may end the process
                lightning.Trainer(accelerator="cpu", max_epochs=1, plugins=[alone], **how).fit(Module(), Loader())
                losses.put(RuntimeError("Trainer.fit ended before its batches did"))
            except BaseException as error:
                losses.put(error)

        self._thread = threading.Thread(target=run, name="fit", daemon=True)
        self._thread.start()

    def step(self, batch: Batch) -> Any:
        """The loss of a step, on the device."""
        self._batches.put((batch.images, batch.labels))
        loss = self._losses.get()
        if isinstance(loss, BaseException):
            raise loss
        return loss

    def end(self) -> None:
        self._batches.put(None)
        self._thread.join()

"""Lightning: the model of the adapter of PyTorch as a LightningModule, trained by `Trainer.fit`."""

from framework_compare.adapters.lightning.on_torch import LightningTrainer

__all__ = ["LightningTrainer"]

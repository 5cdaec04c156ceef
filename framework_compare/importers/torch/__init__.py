"""Modules of torch, and ONNX programs as such: exported by torch.export, and read operator by operator.

`WrittenTrainer` trains a module as its author wrote it.
"""

from framework_compare.importers.torch.as_written import WrittenTrainer as WrittenTrainer
from framework_compare.importers.torch.tracing import TorchImporter as TorchImporter

"""MXNet 1.9: a gluon HybridBlock over the graph, hybridised with static memory, trained by gluon.Trainer.

The engine is asynchronous on a CPU too: a step returns before it has run, and `synchronize` waits for it.
"""

from framework_compare.adapters.mxnet.trainer import MXNetTrainer as MXNetTrainer

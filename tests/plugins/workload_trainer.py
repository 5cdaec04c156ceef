"""The float32 reference with every loss and optimizer, as source for `register_mutated`."""

TRAINER = """
from framework_compare.graph import Optimizer
from .oracle import LOSSES, OPTIMIZERS

class Mutated(ReferenceTrainer):
    declared = ReferenceTrainer.declared._replace(losses=frozenset(LOSSES), optimizers=frozenset(OPTIMIZERS))

    def train_step(self, batch):
        config = self.config
        eps = {"eps": config.epsilon}
        sgd = {"momentum": config.momentum, "weight_decay": config.weight_decay}
        options = sgd if config.optimizer == "sgd" else eps
        optimizer = Optimizer(config.optimizer, config.learning_rate, options)
        return self.oracle.train_step(batch.images, batch.labels, optimizer=optimizer, dropout=self.random)[0]
"""

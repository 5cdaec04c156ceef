"""The reference as a framework on several devices, in one process or in several that average gradients over a socket."""

import os
import signal
from multiprocessing.connection import Client, Listener

import numpy
from reference_trainer import ReferenceTrainer

from framework_compare.graph import Optimizer
from framework_compare.parity.network.oracle import Oracle


class Replicated(ReferenceTrainer):
    """All replicas in one process."""

    name = "mutated"
    declared = ReferenceTrainer.declared._replace(replicas={"cpu": frozenset({"default"})}, several_nodes=True)
    parts = 2  # of a batch, each with batch statistics of its own

    def __init__(self, config, replicas=None):
        super().__init__(config)
        self.replicas = replicas

    def load_weights(self, weights):
        self.oracle = Oracle(self.graph, weights, numpy.float64, replicas=self.parts)

    def gradients(self, batch):
        return self.together(self.oracle.gradients(batch.images, batch.labels, dropout=self.random)[2])

    def train_step(self, batch):
        config, oracle = self.config, self.oracle
        loss, _, gradients, statistics = oracle.gradients(batch.images, batch.labels, dropout=self.random)
        options = {"momentum": config.momentum, "weight_decay": config.weight_decay}
        oracle.apply(self.together(gradients), Optimizer("sgd", config.learning_rate, options))
        oracle.weights.update(statistics)
        return loss

    def together(self, gradients):
        return gradients


class Ranked(Replicated):
    """A process a replica: rank 0 of two gets the other's gradients, and sends back the mean."""

    parts = 1

    def __init__(self, config, replicas):
        super().__init__(config, replicas)
        self.random = numpy.random.default_rng(config.seed + replicas.rank)
        host, _, port = replicas.address.rpartition(":")
        if replicas.rank == 0:
            with Listener((host, int(port)), authkey=b"test") as listener:
                self.other = listener.accept()
            return
        while True:
            try:
                self.other = Client((host, int(port)), authkey=b"test")
                return
            except ConnectionRefusedError:
                pass

    def together(self, gradients):
        if self.replicas.rank:
            self.other.send(gradients)
            return self.other.recv()
        theirs = self.other.recv()
        mean = {name: (gradient + theirs[name]) / 2 for name, gradient in gradients.items()}
        self.other.send(mean)
        return mean


class Mortal(Ranked):
    """Rank 1 ends at its eighth step as `end` says."""

    end = staticmethod(lambda: os.kill(os.getpid(), signal.SIGKILL))
    steps = 0

    def train_step(self, batch):
        self.steps += 1
        if self.steps == 8 and self.replicas.rank == 1:
            self.end()
        return super().train_step(batch)

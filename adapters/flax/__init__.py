"""Flax NNX: the graph as an nnx.Module of Flax's own layers, trained by optax in the loop of Flax's guides.

Threads, batches, losses, optimisers, input pipelines and profiles are those of the adapter of JAX, staged with this one.
"""

from framework_compare.adapters.flax.on_jax import FlaxTrainer

__all__ = ["FlaxTrainer"]

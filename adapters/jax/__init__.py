"""JAX: the graph as a pure function, differentiated by jax.grad and updated by optax, the step one XLA program.

XLA compiles whatever jax.jit captures, so `graph` and `compiled` are the same; `eager` runs op by op. On a CPU
`recommended` states 1x1 convolutions as matrix products, depthwise ones and max pooling as sums and maxima of shifted
images: with XLA's own a step takes 2.4 (ResNet-50) to 2.9 times (MobileNetV2) the CPU time, at batch 16. The native
pipeline is Grain's: one or two loader workers are threads, more are processes, which live for all epochs.
"""

from framework_compare.adapters.jax.trainer import JaxTrainer as JaxTrainer

"""TensorFlow: tf.nn ops on NHWC variables in a tf.Module, the step a tf.function, momentum by its fused op.

tf.nn rather than Keras layers, for the fused BatchNorm: its running variance is the unbiased one the graph asks for,
and its step is faster (0.7 of Keras 3.15's on ResNet-50 and MobileNetV2, benchmarks/results/step_time.json).
"""

from framework_compare.adapters.tensorflow.trainer import TensorFlowTrainer as TensorFlowTrainer

"""Keras models, from a function or a .keras file: read layer by layer, judged in float64 by TensorFlow."""

from framework_compare.importers.keras.tracing import KerasImporter as KerasImporter

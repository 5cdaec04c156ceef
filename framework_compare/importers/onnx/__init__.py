"""ONNX files: read, checked and evaluated in an environment of their own, which has no framework.

What is read becomes nodes and arrays (`common.onnx_program`), of which torch's importer makes a module.
"""

from framework_compare.importers.onnx.tracing import OnnxImporter as OnnxImporter

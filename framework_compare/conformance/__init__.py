"""Tests that an adapter follows the protocol: `pytest --pyargs framework_compare.conformance --frameworks NAME`."""

"""Readers of the cost of a run, all in the parent: context managers that yield samples."""

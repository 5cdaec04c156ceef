"""Whole trainings: a small network as cells train it, and loss curves."""

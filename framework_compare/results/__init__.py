"""Figures and frames: what the stored runs come to."""

"""Models that users bring: where they are, how they are traced, and the proof that the graph is the same function."""

"""The parity ladder: the proof that a framework's network is the same function as the reference."""

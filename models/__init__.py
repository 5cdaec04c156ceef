"""One file per model: a framework-neutral layer graph."""

"""One file a network: a framework-neutral layer graph."""

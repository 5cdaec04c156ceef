"""One file a framework: a Trainer, with its pinned requirements beside it."""

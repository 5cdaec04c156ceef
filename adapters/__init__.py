"""One folder per framework: trainer, network, pipeline, profile, and its pinned requirements. `common` has what all repeat."""

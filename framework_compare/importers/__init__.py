"""One folder a source of models: what reads it in a worker. `common` has what all repeat; `importing` starts the workers."""

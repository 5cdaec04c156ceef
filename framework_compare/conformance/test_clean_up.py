"""release() ends loader processes and leaves no process behind. Read inside the worker, before it exits."""

import pytest


def test_release_ends_loader_processes(ready):
    found = ready.conduct["release"]
    if not found["loaders"]:
        pytest.skip("the native pipeline with 2 loader workers starts no process, so there is nothing to end")
    left = found["left of loaders"]
    assert not left, (
        f"{len(left)} of {len(found['loaders'])} loader processes still exist 5 s after release() ({left[0]}), expected"
        " none: release() must end them"
    )


def test_no_other_process_is_left(ready):
    left = ready.conduct["release"]["left"]
    assert not left, (
        f"{len(left)} processes that no loader started still exist 5 s after release() ({left[0]}), expected none"
    )

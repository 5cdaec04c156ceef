"""The same seed twice, in two workers: the same losses."""

SAME = 1e-3


def test_the_same_seed_has_the_same_losses(ready):
    first, again = ready.conduct["losses"]["losses"], ready.again["losses"]["losses"]
    assert all(abs(a - b) <= SAME * abs(a) for a, b in zip(first, again)), (
        f"two workers with seed {ready.config.seed} and the same batches have losses {first} and {again}, expected the"
        " same within rounding: __init__() must seed the generators that dropout draws from"
    )


def test_the_second_worker_ends_well(ready):
    run = ready.again.run
    assert run.status == "ok", (
        f"a second worker with loader_workers=0 ended as {run.status} ({run.reason}), expected ok"
    )

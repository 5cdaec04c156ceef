"""Every method is there and takes what the runner gives; what comes back has the shapes and types that are promised."""

import pytest

LAYOUTS = ("NCHW", "NHWC")


def test_has_every_method(adapter):
    assert adapter.environment, "or the fixture has failed with the reason"
    faults = adapter.its_class.said.get("methods")
    if faults is None:
        pytest.fail(f"the adapter's file cannot be imported: {adapter.its_class.run.reason}", pytrace=False)
    assert not faults, "; ".join(f"{name}(): {words}" for name, words in faults.items())


def test_starts(adapter):
    if adapter.fault:
        pytest.skip(adapter.fault)
    run = adapter.conduct.run
    assert run.status == "ok", (
        f"a worker that only asks the adapter questions ended as {run.status} ({run.reason}), expected ok;"
        f" its log ends:\n{run.log_tail}"
    )


def test_name_is_text(ready):
    found = ready.conduct["interface"]["name"]
    assert found["type"] == "str" and found["value"], f"name is {found['repr']}, expected the framework's name as text"


def test_layout_is_one_of_two(ready):
    found = ready.conduct["interface"]["layout"]
    assert found["value"] in LAYOUTS, f"layout is {found['repr']}, expected one of {', '.join(LAYOUTS)}"


def test_version_is_text(ready):
    found = ready.conduct["interface"]["version"]
    assert found["type"] == "str" and found["value"], (
        f"version() returned {found['repr']}, expected the framework's version as text"
    )


def test_supported_is_none(ready):
    found = ready.conduct["interface"]["unsupported"]
    assert found["type"] == "NoneType", (
        f"unsupported() returned {found['repr']} for a cell that it supports, expected None: a sentence says that it cannot run"
    )


def test_settings_are_json(ready):
    found = ready.conduct["interface"]["settings"]
    assert found["type"] == "dict", f"settings() returned {found['repr']}, expected a dict"
    assert "no JSON" not in found, (
        f"settings() returned {found['repr']}, which cannot be stored: {found['no JSON']}; expected JSON values only"
    )


def test_environment_is_text_by_name(ready):
    found = ready.conduct["interface"]
    assert found["environment"]["type"] == "dict", (
        f"environment(config) returned {found['environment']['repr']}, expected a dict of environment variables"
    )
    assert not found["not text"], (
        f"environment(config) gives {found['not text'][0]} a value that is not text, expected str(value):"
        " it goes into os.environ"
    )


def test_host_array_is_new_and_float32(ready):
    found = ready.conduct["arrays"]["host_array"]
    assert (found["shape"], found["dtype"]) == ([2, 3, 4, 5], "float32"), (
        f"host_array((2, 3, 4, 5)) returned {_words(found)}, expected a float32 numpy array of that shape"
    )
    assert not found["shared"], "two calls of host_array() returned the same memory, expected a new array from each"


def test_a_batch_knows_its_size(ready):
    found, size = ready.conduct["arrays"]["batch"], ready.config.batch_size
    assert found["size"]["value"] == size and found["size"]["type"] == "int", (
        f"to_device_batch() of {size} images returned a {found['type']} whose size is {found['size']['repr']}, expected"
        f" Batch(images, labels, {size})"
    )


def test_a_batch_reads_back_as_adopted(ready):
    found = ready.conduct["arrays"]
    for name, dtype in (("images", "float32"), ("labels", "int64")):
        wanted = f"the {dtype} array that to_device_batch() was given"
        assert found[name]["dtype"] == dtype, (
            f"read_batch() returned {name} as {_words(found[name])}, expected {wanted}"
        )
        assert found[name]["exact"], (
            f"read_batch() returned {name} ({_words(found[name])}) that differ from what to_device_batch() was given; expected"
            " the same numbers in the layout that the adapter's `layout` names"
        )


@pytest.mark.parametrize("mode", ["evaluation", "training"])
def test_logits(ready, mode):
    found, wanted = ready.conduct["arrays"][mode], [ready.config.batch_size, ready.config.num_classes]
    assert (found["shape"], found["dtype"]) == (wanted, "float32"), (
        f"forward(batch, training={mode == 'training'}) returned {_words(found)}, expected a float32 numpy array of shape"
        f" {tuple(wanted)}: (images, classes)"
    )


def test_gradients(ready):
    found = ready.conduct["arrays"]["gradients"]
    parameters = {p.name: list(p.shape) for p in ready.material.graph.parameters() if p.trainable}
    _check_arrays("gradients()", found, parameters, "every trainable parameter of the graph and nothing else")


def test_weights(ready):
    found = ready.conduct["arrays"]["weights"]
    # their shapes are level 0 of the ladder
    parameters = {p.name: found.get(p.name, {}).get("shape", []) for p in ready.material.graph.parameters()}
    _check_arrays("weights()", found, parameters, "every parameter and running statistic of the graph and nothing else")


def test_losses_are_floats(ready):
    found, wanted = ready.conduct["arrays"]["losses"], ["float", "float"]
    assert (found["type"], found["items"]) == ("list", wanted), (
        f"read_losses() of two steps returned a {found['type']} of {found['items']}, expected a list of two Python floats"
    )


def _check_arrays(what, found, wanted, names):
    for name in {**wanted, **found}:
        assert name in found and name in wanted, (
            f"{what} {'lacks' if name in wanted else 'has'} {name!r}, expected {names}"
        )
        assert (found[name]["shape"], found[name]["dtype"]) == (wanted[name], "float32"), (
            f"{what} returned {name} as {_words(found[name])}, expected a float32 numpy array of shape"
            f" {tuple(wanted[name])}"
        )


def _words(found):
    if found["type"] != "ndarray":
        return f"a {found['type']}, no numpy array"
    return f"{found['dtype']} of shape {tuple(found['shape'])}"

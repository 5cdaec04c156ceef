"""The requirements we ship are complete pins, and equal where frameworks must see the same pictures."""

from __future__ import annotations

import re

import pytest

from framework_compare import registry, venvs


@pytest.mark.parametrize("name", sorted(registry.FRAMEWORKS))
def test_shipped_requirements_are_pinned_with_what_every_adapter_needs(name):
    pins = venvs.read_pins(venvs.requirements_path(registry.framework(name)))
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", pin) for pin in pins), pins
    assert {"numpy", "pillow", "simplejpeg"} <= {pin.partition("==")[0] for pin in pins}
    assert len({venvs.normal_name(pin.partition("==")[0]) for pin in pins}) == len(pins)


@pytest.mark.parametrize("package", ["pillow", "simplejpeg"])
def test_all_frameworks_decode_pictures_with_the_same_code(package):
    files = [venvs.requirements_path(registry.framework(name)) for name in registry.FRAMEWORKS]
    assert len({pin for path in files for pin in venvs.read_pins(path) if pin.startswith(package + "==")}) == 1

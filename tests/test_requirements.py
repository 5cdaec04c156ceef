"""The requirements we ship are complete pins, and equal where frameworks must see the same images."""

from __future__ import annotations

import re

import pytest

from framework_compare import registry
from framework_compare.environments import venvs


def pins_of(name: str, device: str = "cpu") -> "dict[str, str]":
    """Version by normalised name, of requirements that are all pins."""
    pins = venvs.read_pins(venvs.requirements_path(registry.framework(name), device))
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+={2,3}[0-9][A-Za-z0-9.]*", pin) for pin in pins), pins
    found = {venvs.normal_name(pin.partition("=")[0]): pin.rpartition("=")[2] for pin in pins}
    assert len(found) == len(pins)
    return found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", sorted(registry.FRAMEWORKS))
def test_shipped_requirements_are_pinned_with_what_every_adapter_needs(name, device):
    assert {"numpy", "pillow", "simplejpeg"} <= pins_of(name, device).keys()


@pytest.mark.parametrize("name", sorted(registry.FRAMEWORKS))
def test_both_devices_have_the_same_versions_of_what_both_have(name):
    cpu, cuda = pins_of(name), pins_of(name, "cuda")
    assert {package: version for package, version in cuda.items() if package in cpu} == {
        package: version for package, version in cpu.items() if package in cuda
    }
    assert next(iter(cpu.values())) == next(iter(cuda.values())), "the framework itself"


@pytest.mark.parametrize("package", ["pillow", "simplejpeg"])
def test_all_frameworks_decode_pictures_with_the_same_code(package):
    assert len({pins_of(name, device)[package] for name in registry.FRAMEWORKS for device in ("cpu", "cuda")}) == 1

"""What needs no SINGA: which wheel its adapter refuses, its label, how its wheel is installed, its setting."""

from __future__ import annotations

import sys

import pytest

from framework_compare import registry
from framework_compare.adapters.singa import repairs
from framework_compare.errors import Unsupported
from framework_compare.plan.settings import SETTINGS

LABEL = "SINGA 3.0.0.dev1 (2020), repaired at run time"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A folder of files called as the wheel's, whose contents are not."""
    (tmp_path / "singa").mkdir()
    for name in ("__init__.py", *repairs.FILES):
        (tmp_path / "singa" / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    return tmp_path / "singa"


def test_another_wheel_is_refused(wheel):
    with pytest.raises(Unsupported, match=r"has checksum .*; only the wheel singa 3.0.0.dev1 .* is repaired: run"):
        repairs.load()


def test_a_singa_without_that_extension_is_refused(wheel):
    (wheel / repairs.EXTENSION).unlink()
    with pytest.raises(Unsupported, match=f"lacks {repairs.EXTENSION}; only the wheel"):
        repairs.load()


@pytest.mark.parametrize("python", [(3, 7), (3, 13)])
def test_another_python_is_refused(wheel, monkeypatch, python):
    monkeypatch.setattr(sys, "version_info", (*python, 1))
    with pytest.raises(Unsupported, match=f"Python 3.8 to 3.12; this interpreter is 3.{python[1]}"):
        repairs.load()


def test_no_singa_is_unsupported(tmp_path, monkeypatch):
    monkeypatch.setattr(repairs.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="singa is not installed .*env create singa"):
        repairs.load()


def test_pythons_of_the_registry_are_those_of_the_repairs():
    assert registry.framework("singa").python == repairs.PYTHONS


def test_the_label_is_one():
    assert registry.framework("singa").label == repairs.LABEL == LABEL
    assert registry.labels(["torch", "singa", "singa", "absent"]) == (f"singa is {LABEL}.",)


def test_its_setting_says_what_it_does():
    assert SETTINGS["internals"].choices == ("public", "private")
    assert "private field" in SETTINGS["internals"].meaning

"""The requirements we ship are complete pins, and equal where frameworks must see the same images."""

import configparser
import operator
import re
from pathlib import Path

import pytest

from framework_compare import registry
from framework_compare.environments import venvs

PIN = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)={2,3}(?P<version>[0-9][A-Za-z0-9.]*)(\+cpu)?"
    r"( ; python_version (?P<relation>>=|==|<) \"(?P<python>3\.\d+)\")?"
)
RELATIONS = {">=": operator.ge, "==": operator.eq, "<": operator.lt}
BUILDS = [(entry.name, device) for entry in registry.FRAMEWORKS.values() for device in ("cpu", "cuda")]
BUILDS = [(name, device) for name, device in BUILDS if registry.framework(name).requirements_on(device)]


def pins_of(name: str, device: str = "cpu", python: "tuple[int, int] | None" = None) -> "dict[str, str]":
    """Version by normalised name, of requirements that are all pins, for the framework's newest Python or another."""
    spec, found = registry.framework(name), {}
    for pin in venvs.pins_of(spec, device):
        match = PIN.fullmatch(pin)
        assert match, pin
        minor = tuple(map(int, match["python"].split("."))) if match["python"] else None
        if minor is None or RELATIONS[match["relation"]](python or spec.python[1], minor):
            assert venvs.normal_name(match["name"]) not in found, pin
            found[venvs.normal_name(match["name"])] = match["version"]
    return found


@pytest.mark.parametrize("name, device", BUILDS)
def test_shipped_requirements_are_pinned_with_what_every_adapter_needs(name, device):
    assert {"numpy", "pillow", "simplejpeg"} <= pins_of(name, device).keys()


def test_singa_has_one_version_of_each_package_for_every_python():
    assert all(pins_of("singa", python=(3, minor)).keys() == pins_of("singa").keys() for minor in range(8, 13))


@pytest.mark.parametrize("name", [name for name, device in BUILDS if device == "cuda"])
def test_both_devices_have_the_same_versions_of_what_both_have(name):
    cpu, cuda = pins_of(name), pins_of(name, "cuda")
    assert all(version == cpu[package] for package, version in cuda.items() if package in cpu)
    assert next(iter(cpu.values())) == next(iter(cuda.values())), "the framework itself"


def test_all_frameworks_decode_images_with_the_same_code():
    found = [pins_of(name, device) for name, device in BUILDS]
    assert len({(pins["pillow"], pins["simplejpeg"]) for pins in found}) == 1


# Its wheel pins CUDA's libraries itself, and is on an index of its own that could not be read.
UNHASHED = {"paddlepaddle-gpu==3.3.1"}


@pytest.mark.parametrize("name, device", [*BUILDS, ("onnx", "cpu")])
def test_every_file_that_is_installed_is_pinned_by_its_checksum(name, device):
    spec = registry.framework(name)
    files = [venvs.requirements_path(spec, device)]
    files += [Path(venvs.plan(spec, Path()).foreign.requirements)] if spec.foreign else []
    lines = [line for file in files for line in file.read_text().replace("\\\n", " ").splitlines()]
    for line in lines:
        hashed = re.fullmatch(r"[^#]+?(\s+--hash=sha256:[0-9a-f]{64})+", line)
        assert line.startswith("#") or bool(hashed) == (line not in UNHASHED), line


ROOT = Path(__file__).parent.parent


def configured() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_all_that_is_published_is_listed_with_its_requirements_and_types():
    options = configured()["options"]
    listed = set(options["packages"].split())
    mapping = dict(line.split(" = ") for line in options["package_dir"].strip().splitlines())
    found = set()
    for name, folder in mapping.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            found.add(".".join((name, *inner)))
    assert listed == found
    data = configured()["options.package_data"]
    for name, folder in (("adapters", ROOT / "adapters"), ("importers", ROOT / "framework_compare" / "importers")):
        assert data[f"framework_compare.{name}"] == "*/*.txt"
        assert len(list(folder.glob("*/*.txt"))) == len(list(folder.rglob("*.txt")))
    assert "py.typed" in configured()["options.package_data"]["framework_compare"]
    assert (ROOT / "framework_compare/py.typed").exists()


def test_the_command_answers_a_stop_from_its_first_moment():
    """What the console script names must not import the command line before signals are taken."""
    scripts = configured()["options.entry_points"]["console_scripts"]
    assert scripts.split() == ["framework-compare", "=", "framework_compare.cli.entry:main"]

"""What is installed is what is in the folders."""

import configparser
from pathlib import Path

ROOT = Path(__file__).parent.parent


def configured() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_package_folder_is_listed():
    options = configured()["options"]
    listed = set(options["packages"].split())
    mapping = dict(line.split(" = ") for line in options["package_dir"].strip().splitlines())
    found = set()
    for name, folder in mapping.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            found.add(".".join((name, *inner)))
    assert listed == found


def test_requirements_travel_with_the_adapters():
    data = configured()["options.package_data"]
    assert data["framework_compare.adapters"] == "*/*.txt"
    assert len(list((ROOT / "adapters").glob("*/*.txt"))) == len(list((ROOT / "adapters").rglob("*.txt")))


def test_type_checkers_are_told_that_the_package_has_types():
    assert "py.typed" in configured()["options.package_data"]["framework_compare"]
    assert (ROOT / "framework_compare/py.typed").exists()


def test_the_command_answers_a_stop_from_its_first_moment():
    """What the console script names must not import the command line before signals are taken."""
    scripts = configured()["options.entry_points"]["console_scripts"]
    assert scripts.split() == ["framework-compare", "=", "framework_compare.cli.entry:main"]

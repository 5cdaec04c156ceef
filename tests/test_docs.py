"""The README and docs/: links lead somewhere, command lines parse, the test command is the one that CI runs."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from framework_compare.cli.root import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def headings(page: Path) -> "set[str]":
    """Anchors of a page's headings, as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@each_page
def test_relative_links_lead_somewhere(page):
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        assert not anchor or anchor in headings(target), f"{page.name} links to {link}, which has no such heading"


def command_lines(page: Path) -> "list[list[str]]":
    """Words after `framework-compare` of each command line in a page's code blocks."""
    blocks = "".join(FENCED.findall(page.read_text())).replace("\\\n", " ")
    parts = [part.strip().removeprefix("$ ") for line in blocks.splitlines() for part in line.split("&&")]
    found = [shlex.split(part, comments=True) for part in parts if re.match(r"(\S*/)?framework-compare( |$)", part)]
    return [words[1:] for words in found]


def check_command_line(words: "list[str]") -> None:
    """AssertionError where a sub-command or an option is not there."""
    command = typer.main.get_command(app)
    words = list(words)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, f"framework-compare has no command {name!r}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
    unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    assert not unknown, f"{command.name} has no option {unknown[0]!r}"


@each_page
def test_command_lines_parse(page):
    for words in command_lines(page):
        check_command_line(words)


@pytest.mark.parametrize("line", ["run --batchsize 4", "quickstar", "env make torch"])
def test_a_wrong_command_line_is_seen(line):
    with pytest.raises(AssertionError):
        check_command_line(line.split())


@pytest.mark.parametrize("word", ["run", "quickstart", "doctor", "resume", "show"])
def test_the_docs_show_every_main_command(word):
    assert any(words[:1] == [word] for page in PAGES for words in command_lines(page))


def test_ci_runs_the_test_command_of_the_readme():
    commands = re.findall(r'^command="(.+)"$', (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert len(commands) == 1
    assert f"\n{commands[0]}\n" in (ROOT / "README.md").read_text()


def test_python_blocks_compile():
    for page in PAGES:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            compile(block, page.name, "exec")


@pytest.mark.parametrize("name", ["ladder.md", "curves.md"])
def test_the_tables_of_the_fairness_page_are_those_the_command_wrote(name):
    table = (ROOT / "docs" / "fairness" / name).read_text().strip()
    assert table in (ROOT / "docs" / "fairness.md").read_text(), f"paste docs/fairness/{name} into docs/fairness.md"

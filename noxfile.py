"""Sessions of `nox`, each in an environment of its own: `nox --list`, `nox -s lint`, `nox -s tests -- tests/test_docs.py`."""

import tempfile
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "tests"]


def pytest(session: nox.Session, *options: str) -> None:
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", *options, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that a change must pass."""
    pytest(session)


@nox.session
def nightly(session: nox.Session) -> None:
    """The slow proofs, too."""
    pytest(session, "-m", "")


@nox.session
def coverage(session: nox.Session) -> None:
    """The tests, and which lines of the parent's side they run."""
    session.install("pytest-cov")
    pytest(session, "--cov", "--cov-report=term:skip-covered")


@nox.session
def lint(session: nox.Session) -> None:
    """The rules and the form of the code."""
    session.install("-e", ".[test]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """The types of everything, adapters, models and data sets too, linked to where they are installed."""
    pytest(session, "-n", "0", "tests/test_linters.py", "-k", "mypy or type")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as a site, in build/docs."""
    session.install("-e", ".[docs]")
    session.run("python", "-m", "sphinx", "-W", "--keep-going", "docs", "build/docs")


@nox.session
def links(session: nox.Session) -> None:
    """Every link of the documentation, those to other sites too: needs the internet, and fails without it."""
    session.install("-e", ".[docs]")
    options = "-W", "--keep-going", "-b", "linkcheck", "-D", "nb_execution_mode=off"
    session.run("python", "-m", "sphinx", *options, "docs", "build/links")


@nox.session
def renew(session: nox.Session) -> None:
    """Once a month: the newest release of each framework, its parity, its step time beside the pinned one's."""
    session.install("-e", ".")
    session.run("python", "benchmarks/renew.py", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Wheel and source distribution in dist/, each installed into an empty environment and asked for its version."""
    session.install("build", "twine", "uv")
    session.run("python", "-c", "import shutil; shutil.rmtree('dist', ignore_errors=True)")
    session.run("python", "-m", "build")
    made = sorted(map(str, Path("dist").iterdir()))
    session.run("twine", "check", "--strict", *made)
    for file in made:
        with tempfile.TemporaryDirectory() as place:
            session.run("uv", "venv", "--quiet", place, "--clear")
            session.run("uv", "pip", "install", "--quiet", "--python", place, file)
            session.run(f"{place}/bin/framework-compare", "--version", external=True)

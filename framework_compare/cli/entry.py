"""The console script: a stop is answered in one line from the first moment to the last, imports included."""

from __future__ import annotations

import signal
import sys
from typing import Any


def main() -> None:
    """`framework-compare`: exit code 130 where SIGINT or SIGTERM stops it, whatever it is at."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        from framework_compare.cli import root

        root.main()
    except KeyboardInterrupt:
        print("framework-compare: stopped", file=sys.stderr)
        sys.exit(130)
    finally:
        # All is said and stored: what arrives while the interpreter tidies up changes nothing.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt

"""The console script. Ctrl-C ends it with one line at any moment, imports included."""

import signal
import sys


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
        # Everything is printed and stored; a signal during the interpreter's clean-up would only add a traceback.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt

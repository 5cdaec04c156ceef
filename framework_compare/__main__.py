"""`python -m framework_compare` is the command `framework-compare`."""

from framework_compare.cli.entry import main

main()

"""What a file of pickles may hold."""

from pathlib import Path


class Runs:
    """A pickle that would call a function as it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)

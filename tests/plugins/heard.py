"""A watcher that keeps what it hears."""

from framework_compare.study.progress import Watcher


class Heard(Watcher):
    def __init__(self) -> None:
        self.said: "list[str]" = []
        self.left_s: "list[tuple[float, bool]]" = []

    def say(self, message: str) -> None:
        self.said.append(message)

    def left(self, seconds: float, at_most: bool = False) -> None:
        self.left_s.append((seconds, at_most))

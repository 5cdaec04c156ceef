"""Names of frameworks, models and devices as people write them."""

from collections.abc import Iterable, Sequence

from framework_compare import registry

DEVICES = {"cuda": "GPU", "cpu": "CPU"}


def title(name: object) -> str:
    """A name as people write it, "PyTorch 2.12.0" for "torch@2.12.0"; one that is not known stays."""
    base, _, version = str(name).partition("@")
    if base not in registry.FRAMEWORKS and base not in registry.MODELS and base not in DEVICES:
        registry.load_plugins()
    entry = registry.FRAMEWORKS.get(base) or registry.AS_WRITTEN.get(base) or registry.MODELS.get(base)
    known = entry.title if entry else DEVICES.get(base)
    return f"{known} {version}".strip() if known else str(name)


def listed(names: Iterable[str]) -> str:
    """Names as a sentence lists them: "A, B and C"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def in_order(names: Sequence[str]) -> list[str]:
    """Frameworks in the order of the registry, versions of one as they come, others after them."""
    places = {name: place for place, name in enumerate(registry.FRAMEWORKS)}
    return sorted(dict.fromkeys(names), key=lambda name: places.get(str(name).partition("@")[0], len(places)))

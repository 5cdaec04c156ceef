"""Refuses what an adapter does not declare, before its framework is imported. Worker side.

An adapter that does not know a setting would train with another one, and its times would be published as that one's.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Type

from framework_compare.errors import ProtocolError, Unsupported
from framework_compare.graph import Graph
from framework_compare.protocol import UPDATES, Declared, Replicas, TrainConfig, Trainer


class Ask(NamedTuple):
    """Requirement of a job on one field of Declared."""

    noun: str
    names: Callable[[TrainConfig, Iterable[Graph]], Iterable[str]]
    advice: str = ""  # what to do where a class declares none of it


def _optimizer(config: TrainConfig) -> str:
    own = config.optimizer_variant == "native"
    return f"native {config.optimizer}" if own else config.optimizer


def _updates(config: TrainConfig) -> List[str]:
    asked = (config.clip_norm > 0, config.ramp_updates + config.decay_updates > 0, config.accumulation > 1)
    return [name for name, wanted in zip(UPDATES, asked) if wanted]


# By field of Declared. A setting that joins TrainConfig (a metric) joins here, or nobody refuses it.
ASKS: Dict[str, Ask] = {
    "ops": Ask("op", lambda config, graphs: [node.op for graph in graphs for node in graph.nodes]),
    "losses": Ask("loss", lambda config, graphs: [config.loss, *(graph.task.named_loss for graph in graphs)]),
    "optimizers": Ask("optimizer", lambda config, graphs: [_optimizer(config)]),
    "executions": Ask("execution", lambda config, graphs: [config.execution]),
    "precisions": Ask("precision", lambda config, graphs: [config.precision]),
    "internals": Ask("internals", lambda config, graphs: [config.internals]),
    "updates": Ask("update setting", lambda config, graphs: _updates(config)),
    "gpu_threads": Ask("gpu_threads", lambda config, graphs: [config.gpu_threads]),
    "generation": Ask(
        "mode 'generation' in execution",
        lambda config, graphs: [config.execution] if config.mode == "generation" else [],
        "; choose torch, lightning, jax, tensorflow or paddle, which cache keys and values",
    ),
}
BY_DEVICE = ("executions", "precisions", "replicas", "untested")


def refuse_undeclared(
    trainer: Type[Trainer], config: TrainConfig, graphs: Iterable[Graph], replicas: Optional[Replicas] = None
) -> None:
    """Raise Unsupported for all that a trainer's class does not declare; the reason says why, and lists what it does.

    Raises ProtocolError where the class declares nothing.
    """
    why = fault_of(getattr(trainer, "declared", None))
    if why:
        raise ProtocolError(f"{trainer.__name__}.declared {why}")
    graphs, kind = list(graphs), config.device.partition(":")[0]
    lacks: List[str] = []
    for field, ask in ASKS.items():
        declared, on = getattr(trainer.declared, field), ""
        if field in BY_DEVICE:
            if kind not in declared:
                raise Unsupported(_lack(trainer, f"device {config.device!r}", declared, [kind]))
            declared, on = declared[kind], f" on device {config.device!r}"
        missing = [name for name in dict.fromkeys(ask.names(config, graphs)) if name not in declared]
        if missing:
            nouns = ask.noun if len(missing) == 1 else f"{ask.noun}s"
            advice = "" if declared else ask.advice
            lacks.append(_lack(trainer, f"{nouns} {', '.join(map(repr, missing))}{on}", declared, missing) + advice)
    if config.mode == "inference" and not hasattr(trainer, "infer"):
        why = _why(trainer, ["inference"])
        lacks.append(f"the adapter of {trainer.name} has no inference{why}; allowed: mode 'train'")
    if lacks:
        raise Unsupported(". ".join(lacks))
    if replicas:
        _refuse_replicas(trainer, config, kind, len(replicas.devices))
    if config.nodes > 1 and not trainer.declared.several_nodes:
        raise Unsupported(f"{trainer.name} declares no replicas on several nodes; use one node, with several devices")
    for graph in graphs:
        if len(graph.inputs) > 1 and not trainer.declared.several_inputs:
            why = _why(trainer, ["several_inputs"])
            raise Unsupported(
                f"{trainer.name} declares no models of several inputs{why}; {graph.name} has {len(graph.inputs)}"
            )


def _refuse_replicas(trainer: Type[Trainer], config: TrainConfig, kind: str, count: int) -> None:
    declared, where = trainer.declared.replicas.get(kind, frozenset()), f"{count} devices of kind {kind!r}"
    if not declared:
        why = _why(trainer, ["replicas"]) or "; use one device"
        raise Unsupported(f"{trainer.name} declares no replicas on {where}{why}")
    if config.execution not in declared:
        what = f"execution {config.execution!r} on {where}"
        raise Unsupported(_lack(trainer, what, declared, [config.execution]))
    if config.mode != "train":
        raise Unsupported(f"mode {config.mode!r} runs on one device; {where} are for mode 'train'")


def _lack(trainer: Type[Trainer], what: str, declared: Iterable[str], missing: Iterable[str]) -> str:
    name = getattr(trainer, "name", trainer.__name__)
    return f"{name} declares no {what}{_why(trainer, missing)}; declared: {', '.join(sorted(declared)) or 'none'}"


def _why(trainer: Type[Trainer], missing: Iterable[str]) -> str:
    """Return what the class says of what is missing, once each, in words that follow it."""
    reasons = dict.fromkeys(trainer.declared.why[name] for name in missing if name in trainer.declared.why)
    return f": {', and '.join(reasons)}" if reasons else ""


def untested(declared: Declared, device: str, precisions: Iterable[str]) -> str:
    """Say in a sentence which declared precisions no device of this kind has run; "" if none."""
    kind = device.partition(":")[0]
    names = [name for name in precisions if name in declared.untested.get(kind, ())]
    what = {"cpu": "a CPU", "cuda": "a GPU"}.get(kind, kind)
    return f"{', '.join(names)} on {what}: untested, because this adapter has not run like this yet" if names else ""


def fault_of(declared: object) -> str:
    """Return what is wrong with a class's attribute `declared`, in words that follow its name; "" if nothing."""
    if not isinstance(declared, Declared):
        fields = ", ".join(Declared._fields)
        kind = "is missing" if declared is None else f"is a {type(declared).__name__}"
        return f"{kind}; add to the class what it implements: declared = framework_compare.protocol.Declared({fields})"
    sets = {field: getattr(declared, field) for field in ASKS if field not in BY_DEVICE}
    for field in BY_DEVICE:
        by_kind = getattr(declared, field)
        if not isinstance(by_kind, Mapping):
            return (
                f"has {field} of type {type(by_kind).__name__}, expected a mapping from 'cpu' or 'cuda' to a frozenset"
            )
        sets.update({f"{field}[{kind!r}]": names for kind, names in by_kind.items()})
    for field, names in sets.items():
        if not isinstance(names, frozenset) or not all(isinstance(name, str) for name in names):
            return f"has {field} = {names!r}, expected a frozenset of names"
    return ""

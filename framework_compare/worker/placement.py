"""Find this process's part of a cell on several devices. Worker side; standard library only."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional, Tuple, Type

from framework_compare.protocol import Job, Replicas, TrainConfig, Trainer, replicas_of

OF_ALL_REPLICAS = ("batch_size", "threads", "loader_workers")  # settings that are of one replica each


def rank_of(environment: Mapping[str, str] = os.environ) -> Optional[int]:
    """This process's number among those that train a cell; None where it is the only one."""
    return int(environment["RANK"]) if "RANK" in environment else None


def own_part(job: Job, environment: Mapping[str, str] = os.environ) -> Tuple[Job, Optional[Replicas]]:
    """The job as this process does it, and where the replicas are; None of a cell on one device.

    The process of one replica has the config of a cell on that device. One of several replicas has the device of its
    first, and as many images a step, threads and loader workers as all of its own together.
    """
    devices, rank = replicas_of(job.config), rank_of(environment)
    if len(devices) == 1:
        return job, None
    replicas, steps = Replicas(devices), job.steps
    if rank is not None:
        address = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
        replicas = Replicas(devices, rank, address, int(environment["WORLD_SIZE"]))
        steps = "" if rank else job.steps  # rank 0 has the clock
    own = replicas.own
    of_all = {name: len(own) * getattr(job.config, name) for name in OF_ALL_REPLICAS}
    config = dataclasses.replace(job.config, device=own[0], **of_all)
    return dataclasses.replace(job, config=config, steps=steps), replicas


def make_trainer(trainer: Type[Trainer], config: TrainConfig, replicas: Optional[Replicas]) -> Any:
    """A trainer of that class; one that trains on one device is never told of replicas."""
    return trainer(config) if replicas is None else trainer(config, replicas)

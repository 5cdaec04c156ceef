"""The variables by which the ranks of paddle.DataParallel know each other."""

from typing import Dict, Optional

from framework_compare.protocol import Replicas


def rank_environment(replicas: Replicas, gpu: Optional[int]) -> Dict[str, str]:
    """Return what Paddle's launcher sets for a rank before Paddle is imported. Only rank 0 listens at its port."""
    host, _, port = replicas.address.rpartition(":")
    endpoints = [f"{host}:{int(port) + number}" for number in range(len(replicas.devices))]
    where = {"PADDLE_DISTRI_BACKEND": "gloo"} if gpu is None else {"FLAGS_selected_gpus": str(gpu)}
    return {
        "PADDLE_TRAINER_ID": str(replicas.rank),
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[replicas.rank or 0],
        "PADDLE_MASTER": replicas.address,
        **where,
    }

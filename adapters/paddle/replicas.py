"""One replica of paddle.DataParallel, and the variables by which Paddle's ranks know each other."""

from typing import Any, Dict

from framework_compare.protocol import Replicas


def environment(replicas: Replicas, gpu: "int | None") -> Dict[str, str]:
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


def wrap(paddle: Any, network: Any) -> Any:
    """The network whose backward pass leaves the mean of the ranks' gradients; meets the other ranks the first time."""
    paddle.distributed.init_parallel_env()
    return paddle.DataParallel(network)

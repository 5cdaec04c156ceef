"""Several devices without training: names of devices, ranks, ports, lines, losses; what is refused; several nodes."""

import json
import os
import sys

import numpy as np
import pytest
from processes import wait_for
from slurm_cluster import is_free

from framework_compare.batches.order import share_of, share_size
from framework_compare.errors import ProtocolError, UnknownNameError, UsageError
from framework_compare.events import EventWriter
from framework_compare.launch.supervised_worker import SupervisedWorker
from framework_compare.launch.transcript import Transcript
from framework_compare.plan import planning
from framework_compare.plan.values import split_devices
from framework_compare.protocol import Job, Replicas, TrainConfig, devices_of
from framework_compare.samplers.nvml import GpuGroup, GpuReading, gpu_indices
from framework_compare.worker.placement import own_part

CPUS = ("cpu", "cpu")


def test_a_device_may_be_several_whose_counts_begin_at_the_one_that_is_named():
    assert devices_of("cuda:1") == ("cuda:1",) and devices_of("cuda:0,2") == ("cuda:0", "cuda:2")
    assert devices_of("cpu") == ("cpu",) and devices_of("cpu:0,1") == CPUS
    assert gpu_indices("cuda:0,2") == (0, 2) and gpu_indices("cpu:0,1") == ()
    assert split_devices("cpu,cuda:0,1,cuda:3") == ["cpu", "cuda:0,1", "cuda:3"]
    assert planning.on_several(["cpu", "cuda:2"], [1, 2]) == ["cpu", "cpu:0,1", "cuda:2", "cuda:2,3"]
    with pytest.raises(UsageError, match="devices is 2 and device 'cuda:0,1' names several"):
        planning.on_several(["cuda:0,1"], 2)
    with pytest.raises(UsageError, match="at least one number is needed"):
        planning.on_several(["cpu"], [])
    for device in ("cuda:0,0", "cpu:1,2", "cpu:0", "cuda:", "cuda:0,", "cpu:0,0", "cpu:0,2"):
        with pytest.raises((UsageError, UnknownNameError), match="device"):
            planning.check_device(device)


def test_no_other_program_gets_the_port_at_which_ranks_meet(tmp_path):
    """Neither before rank 0 listens at it, which it can, nor afterwards."""
    code = (
        "import os, pathlib, socket, time\n"
        "port, first = os.environ['MASTER_PORT'], os.environ['RANK'] == '0'\n"
        "first and pathlib.Path('started').write_text(port + '.')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "listening = first and socket.create_server(('127.0.0.1', int(port)))\n"
        "first and pathlib.Path('listens').write_text('.')\n"
        "time.sleep(60)"
    )
    places = {"log": tmp_path / "log.txt", "folder": tmp_path}
    with SupervisedWorker([sys.executable, "-c", code], environment={}, ranks=2, **places):
        port = int(written(tmp_path / "started"))
        assert not is_free(port)
        (tmp_path / "go").touch()
        assert written(tmp_path / "listens") == "" and not is_free(port)
    assert is_free(port)


def written(path):
    """What a worker has written up to a full stop."""
    assert wait_for(lambda: path.exists() and path.read_text().endswith("."))
    return path.read_text()[:-1]


@pytest.mark.parametrize("count", [1, 3, 7, 8, 16, 21])
def test_ranks_share_an_order_as_one_process_would_split_it(count):
    """Global batch k is the order's k-th 8, rank r's its r-th 4; what is left is shared evenly."""
    order, batch = np.random.default_rng(count).permutation(count), 4
    ranks = [share_of(order, batch, Replicas(CPUS, rank, "host:1", 2)) for rank in (0, 1)]
    together = share_of(order, 2 * batch, Replicas(CPUS))
    assert len(ranks[0]) == len(ranks[1]) == share_size(count, batch, Replicas(CPUS, 0, "host:1", 2))
    for start in range(0, len(together), 2 * batch):
        halves = np.split(together[start : start + 2 * batch], 2)
        for rank, half in zip(ranks, halves):
            np.testing.assert_array_equal(rank[start // 2 : start // 2 + len(half)], half)
    assert len(together) == count - count % 8 % 2 and set(together) <= set(order)
    assert share_of(order, batch, None) is order


def test_a_process_gets_the_config_and_the_devices_of_its_part():
    job = Job(TrainConfig(device="cuda:1,3", batch_size=4, threads=2, loader_workers=1), steps="steps")
    alone, replicas = own_part(job, {})
    assert replicas == Replicas(("cuda:1", "cuda:3"))
    assert (alone.config.device, alone.config.batch_size, alone.config.threads) == ("cuda:1", 8, 4)
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    ranked, replicas = own_part(job, variables)
    assert replicas == Replicas(("cuda:1", "cuda:3"), 1, "127.0.0.1:9", 2)
    assert (ranked.config.device, ranked.config.batch_size, ranked.steps) == ("cuda:3", 4, "")
    assert own_part(Job(TrainConfig(device="cuda:1")), variables) == (Job(TrainConfig(device="cuda:1")), None)
    job = Job(TrainConfig(device="cuda:1,3", nodes=2, batch_size=4, threads=2))
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "9"}
    devices = ("cuda:1", "cuda:3") * 2
    whole, replicas = own_part(job, variables)
    assert replicas == Replicas(devices, 1, "a:9", 2) and replicas.own == ("cuda:1", "cuda:3")
    assert (whole.config.device, whole.config.batch_size, whole.config.threads) == ("cuda:1", 8, 4)
    one, replicas = own_part(job, {**variables, "RANK": "3", "WORLD_SIZE": "4"})
    assert replicas == Replicas(devices, 3, "a:9", 4) and (one.config.device, one.config.batch_size) == ("cuda:3", 4)
    order = np.arange(21)
    shares = [share_of(order, 8, Replicas(devices, rank, "a:9", 2)) for rank in (0, 1)]
    np.testing.assert_array_equal(np.concatenate([shares[0][:8], shares[1][:8]]), order[:16])
    assert list(map(len, shares)) == [10, 10], "of the last five images each of four replicas takes one"


def test_a_line_of_a_rank_is_written_whole():
    read, write = os.pipe()
    EventWriter(write, 1).send("phase", name="build", edge="start")
    EventWriter(write, 1).send("outcome", status="failed", reason="é" * 9000, traceback="x" * 9000 + "the end")
    os.close(write)
    with open(read, "rb") as file:
        (line,) = file.read().splitlines()
    event = json.loads(line)
    assert len(line) < 4096 and event["rank"] == 1 and event["traceback"].endswith("the end")


EPOCH = {"event": "epoch", "t_ns": 9, "number": 1, "start_ns": 0, "end_ns": 8, "data_wait_ns": 1, "images": 4, "steps": 1,
         "step_ns": [1, 2, 3]}  # fmt: skip


def test_a_loss_is_the_mean_of_the_ranks_and_memory_their_sum_and_what_a_rank_cannot_say_malformed():
    for order in ((0, 1), (1, 0)):
        transcript = Transcript(0, epochs=1, ranks=2)
        for edge in ("start", "end"):
            transcript.add({"event": "phase", "t_ns": 1, "name": "epochs", "edge": edge})
        for rank in order:
            transcript.add({**EPOCH, "loss": 1.0 + rank, "rank": rank})
            transcript.add({"event": "memory", "t_ns": 2, "phase": "epochs", "pss_bytes": 100 + rank, "rank": rank})
        assert transcript.epochs[0].loss == 1.5 and transcript.phases[0].pss_bytes == 201
    for fields in ({"images": 2}, {"rank": 2}, {"rank": -1}, {"event": "phase"}):
        transcript = Transcript(0, epochs=1, ranks=2)
        transcript.add({**EPOCH, "loss": 1.0})
        with pytest.raises(ProtocolError, match="malformed"):
            transcript.add({**EPOCH, "loss": 1.0, "rank": 1, "name": "build", "edge": "start", **fields})


def test_gpus_are_read_as_one():
    class Gpu:
        def __init__(self, number):
            self.number, self.reason = number, None

        def read(self, pids):
            number = self.number
            return GpuReading(50.0 * number, 10, 100.0, None, 40.0 + number, 1000.0 - number, number)

        def energy_j(self):
            return float(self.number)

        def warnings(self):
            return ["busy"] if self.number else []

        def facts(self):
            return {"name": f"GPU {self.number}"}

    group = GpuGroup({0: Gpu(0), 1: Gpu(1)})
    assert group.read() == GpuReading(25.0, 20, 200.0, None, 41.0, 999.0, 1)
    assert {meter.device: meter.read() for meter in group.meters()} == {"gpu-0": 0.0, "gpu-1": 1.0}
    assert group.warnings() == ["GPU 1: busy"] and group.facts()["devices"]["1"] == {"name": "GPU 1"}

"""Studies of GPUs with known figures, from which ratios and energy are made."""

from stored_study import SECOND, epochs, recorded

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Energy, Run, Sample

OOM = Run("out-of-memory", "torch.OutOfMemoryError: CUDA out of memory")


def ok(*seconds, joules=None, power_w=None, own=None, host=None, source="counter", **fields):
    """Epochs of 100 images; joules of the GPU and the host over all of them."""
    made, energy = epochs(*seconds, start_ns=SECOND), []
    at = made[-1].end_ns
    for device, total in (("gpu", joules), ("host-package-0", host)):
        if total is not None:
            energy += [Energy(device, SECOND, 7.0, source), Energy(device, at, 7.0 + total, source)]
    sample = Sample(2 * SECOND, rss_bytes=2**31, gpu_power_w=power_w, gpu_process_memory_bytes=own)
    gauges = {"gpu": {"energy_source": source}} if joules else {}
    fields = {"disturbed_epochs": 0, **fields}
    return Run("ok", epochs=made, samples=(sample,), energy=tuple(energy), gauges=gauges, **fields)


def study(folder, outcomes, images=None, repeats=1):
    """`outcomes` are (framework, settings, Run or None), all of AlexNet on one data set of so many images.

    Each repeat of a cell has the same outcome.
    """
    cells = [Cell(f, "alexnet", "small", c.get("device", "cpu"), TrainConfig(**c)) for f, c, _ in outcomes]
    settings = {"datasets": {"small": {"images": images}}} if images else {}
    return recorded(folder, cells, [run for _, _, run in repeats * outcomes], repeats, settings=settings)

"""The cost of epochs: the price of the machine's time and of its energy, and the CO2 of that energy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from framework_compare.errors import UnknownNameError, UsageError, check_count
from framework_compare.registry import device_kind

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("bill_s", "bill_time", "bill_time_low", "bill_time_high", "bill_wh", "bill_energy", "bill_co2_g")
KINDS = ("cpu", "cuda")  # of devices that have a price of their own
MOST = 1e12  # of a price
HOUR_S = 3600.0
WH_J = 3600.0
PerHour = float | Mapping[str, float] | None


@dataclasses.dataclass(frozen=True)
class Prices:
    """Prices in any one currency, each None where it is not asked for; UsageError for others, and for none at all.

    per_hour: of the machine, one number, or by kind of device: {"cpu": 0.2, "cuda": 3.5}. per_kwh: of energy.
    co2_g_per_kwh: grams of CO2 that a kilowatt-hour of it stands for.
    """

    per_hour: PerHour = None
    per_kwh: float | None = None
    co2_g_per_kwh: float | None = None

    def __post_init__(self) -> None:
        hours = self.per_hour if isinstance(self.per_hour, Mapping) else {"per_hour": self.per_hour}
        given = {**hours, "per_kwh": self.per_kwh, "co2_g_per_kwh": self.co2_g_per_kwh}
        known = {name: value for name, value in given.items() if value is not None}
        for name in hours.keys() - {"per_hour", *KINDS}:
            raise UnknownNameError("kind of device", name, KINDS)
        if not known:
            raise UsageError(
                "no price is given; give per_hour, per_kwh or co2_g_per_kwh (--per-hour, --per-kwh, --co2-g-per-kwh)"
            )
        for name, value in known.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MOST:
                raise UsageError(
                    f"the price {name} is {value!r}; allowed: a number of at least 0 and at most {MOST:,.0f}"
                )

    def hour_on(self, device: str) -> float:
        """Return the price of an hour of the machine with a device; NaN where it has none."""
        price = self.per_hour.get(device_kind(device)) if isinstance(self.per_hour, Mapping) else self.per_hour
        return math.nan if price is None else float(price)


def bill_frame(frame: pd.DataFrame, prices: Prices, epochs: int = 1) -> pd.DataFrame:
    """The cell frame with COLUMNS, of so many epochs; NaN for what a cell has not.

    bill_s: seconds of the epochs, without start-up. bill_time: the price of the machine in them, with the ends of the
    interval of the epoch time. bill_wh: energy of GPU and host, where both that are read have readings. bill_energy: its
    price. bill_co2_g: its CO2.
    """
    check_count("epochs", epochs)
    sampled, on_cpu = frame["epoch_s_median"].isna(), frame["device"].map(device_kind) == "cpu"

    def seconds(median: str, estimate: str) -> pd.Series:
        return frame[estimate].where(sampled, frame[median]).where(frame["status"] == "ok") * epochs

    whole_s = seconds("epoch_s_median", "epoch_estimate_s")
    second = frame["device"].map(prices.hour_on).astype(float) / HOUR_S
    joules = frame[["gpu_j_per_image", "host_j_per_image"]].where(lambda each: each > 0)
    known = joules.sum(axis=1, min_count=1).where(
        on_cpu | (joules["gpu_j_per_image"] > 0)
    )  # the host alone is no bill of a GPU
    wh = known * frame["images_per_s"] * whole_s / WH_J
    per_kwh, co2_g = (math.nan if price is None else price for price in (prices.per_kwh, prices.co2_g_per_kwh))
    return frame.assign(
        bill_s=whole_s,
        bill_time=second * whole_s,
        bill_time_low=second * seconds("epoch_s_ci_low", "epoch_estimate_s_low"),
        bill_time_high=second * seconds("epoch_s_ci_high", "epoch_estimate_s_high"),
        bill_wh=wh,
        bill_energy=wh / 1000 * per_kwh,
        bill_co2_g=wh / 1000 * co2_g,
    )


def read_per_hour(text: str | None) -> PerHour:
    """ "3.5", or by kind of device "cpu=0.2,cuda=3.5"; UsageError for another text."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        pairs: list[list[str]] = [part.split("=", 1) for part in text.split(",")]
        return {device_kind(name.strip()): float(price) for name, price in pairs}
    except ValueError:
        raise UsageError(
            f"--per-hour is {text!r}; allowed: a number, or one for each kind of device: cpu=0.2,cuda=3.5"
        ) from None

"""tinygrad on a CPU, for framework_compare: the entry point names FRAMEWORK, a worker loads the adapter."""

from framework_compare.registry import Framework

FRAMEWORK = Framework(
    "tinygrad",
    "fc_tinygrad.adapter:TinygradTrainer",
    "requirements.txt",  # beside the adapter
    imports="tinygrad",
    python=((3, 11), (3, 13)),
)

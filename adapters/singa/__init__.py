"""SINGA 3.0.0.dev1 (2020), repaired at run time: the only wheel on PyPI, for CPUs and CPython 3.6.

It runs on 3.8 to 3.12 too, once its extension is loaded by hand and what it lacks is mended: repairs.py. All arithmetic
is SINGA's own.
"""

from framework_compare.adapters.singa.trainer import SingaTrainer as SingaTrainer

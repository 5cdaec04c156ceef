"""PaddlePaddle 3: dynamic graph of paddle.nn layers by default, paddle.jit.to_static for `graph`.

Linear weights are (in, out); BatchNorm's momentum is the share of the old statistics that is kept.
"""

from framework_compare.adapters.paddle.trainer import PaddleTrainer as PaddleTrainer

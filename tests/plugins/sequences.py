"""Tasks of sequences and rows, and test models: a forecast and a tagger, small ones of the workloads' networks."""

from framework_compare.graph import Field, Graph, Task
from framework_compare.models import bilstm_tagger, lstm

SERIES = Task((Field("prices", (12, 3)),), Field("price", (1,)), 1, "mse", (), "sequence")
TOKENS = Field("tokens", (9,), "int32", 40)
TAGS = Task((TOKENS,), Field("tags", (9,), "int64"), 3, "token_cross_entropy", (), "sequence")
WORDS = Task((TOKENS,), Field("word", (), "int64"), 40, "cross_entropy", (), "sequence")
TEXT = Task((TOKENS,), Field("next", (9,), "int64"), 40, "token_cross_entropy", (), "sequence")
ROWS = Task((Field("row", (8,)),), Field("y", (1,)), 1, "binary_cross_entropy", (), "row")


def forecast(num_classes: int = 3, image_size: int = 224) -> Graph:
    task = Task((Field("prices", (12, 2)),), Field("price", (1,)), 1, "mse", (), "sequence")
    return lstm.build(task, layers=2, hidden=16, kind="gru")


def tagger(num_classes: int = 3, image_size: int = 224) -> Graph:
    tokens = Field("tokens", (20,), "int32", 50)
    task = Task((tokens,), Field("tags", (20,), "int64"), num_classes, "token_cross_entropy", (), "sequence")
    return bilstm_tagger.build(task, width=12, hidden=16)

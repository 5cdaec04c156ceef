"""A tag for each token by spaCy 2's stack: embedding, residual blocks of a window of three, maxout and LayerNorm.

spaCy embeds four hashed features of a word and parses transitions; here one embedding goes to logits at every step.
"""

from framework_compare.graph import Graph, GraphBuilder, Task

PIECES = 3


def build(task: Task, width: int = 96, blocks: int = 4) -> Graph:
    g = GraphBuilder("conv_tagger", task)
    g.embedding("embedding", width)
    for index in range(blocks):
        source = g.last
        g.conv1d(f"blocks.{index}.conv", width * PIECES, 3, padding=1)
        g.maxout(f"blocks.{index}.maxout", PIECES)
        branch = g.layernorm(f"blocks.{index}.norm")
        g.add(f"blocks.{index}.add", branch, source)
    g.linear("fc", task.outputs, init="glorot_uniform")
    return g.build()

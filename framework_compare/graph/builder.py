"""Builds a model layer by layer; each layer's shape is checked as it is added."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Tuple

from framework_compare.errors import UsageError
from framework_compare.graph.circuit import Gate
from framework_compare.graph.network import Graph
from framework_compare.graph.node import Node, Shape, conv_attrs, feature_axis, linear_attrs, unless, window_attrs
from framework_compare.graph.ops import OPS
from framework_compare.graph.primitives import constant_attrs
from framework_compare.graph.task import Task, image_classification
from framework_compare.graph.window import Numbers, plain
from framework_compare.json_types import Fields

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


WITHOUT_INPUTS = ("Parameter", "Constant", "RelativeBias")


def _plain(op: str, doc: Optional[str] = None) -> Callable[..., str]:
    """A method that adds an op of one input without attributes."""

    def method(self: GraphBuilder, name: str, *, source: str = "") -> str:
        return self._add(name, op, source)

    method.__doc__ = doc
    return method


class GraphBuilder:
    """Adds layers one after another; each call returns the name of the new node, which other layers can read.

    The graph is for a task, or for RGB images of image_size x image_size pixels in num_classes classes.
    """

    def __init__(
        self,
        name: str,
        task: Optional[Task] = None,
        *,
        num_classes: Optional[int] = None,
        image_size: Optional[int] = None,
    ) -> None:
        self._of_images = task is None
        if task is None:
            sizes = {"num_classes": num_classes, "image_size": image_size}
            for what, size in sizes.items():
                if not isinstance(size, int) or size < 1:
                    raise UsageError(f"{name}: {what} is {size!r}; allowed: a whole number of at least 1")
            task = image_classification(num_classes or 0, image_size or 0)
        self._graph = Graph(name, task, ())
        self._nodes: List[Node] = []
        self._shapes: Dict[str, Shape] = {source: field.shape for source, field in self._graph.inputs.items()}
        self.last = next(iter(self._shapes))

    def _add(self, name: str, op: str, *sources: str, **attrs: object) -> str:
        """A node that reads these, or the last node where none is named."""
        if name in self._shapes:
            raise UsageError(f"{self._graph.name}: two nodes are called {name!r}")
        inputs = () if op in WITHOUT_INPUTS else tuple(filter(None, sources)) or (self.last,)
        node = Node(name, op, inputs, attrs)
        try:
            self._shapes[name] = OPS[op].shape(node, *(self._shapes[source] for source in inputs))
        except UsageError as error:
            raise self._refusal(str(error)) from None
        self._nodes.append(node)
        self.last = name
        return name

    def _refusal(self, error: str) -> UsageError:
        graph = self._graph
        if not self._of_images:
            return UsageError(f"{graph.name}: {error}")
        return UsageError(f"{graph.name} does not accept image_size {graph.image_size}: {error}; use a larger one")

    def again(self, name: str, layer: str, source: str = "") -> str:
        """Apply a layer of this model again, with the same arrays, to another value."""
        node = next(node for node in self._nodes if node.name == layer)
        return self._add(name, node.op, source, **{**node.attrs, "arrays": layer})

    def shape(self, name: str = "") -> Shape:
        return self._shapes[name or self.last]

    def _features(self, source: str) -> int:
        shape = self.shape(source)
        return shape[feature_axis(shape)]

    def conv(
        self,
        name: str,
        out: int,
        kernel: Numbers,
        *,
        stride: Numbers = 1,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        bias: bool = False,
        init: str = "kaiming_normal_fan_out",
        source: str = "",
    ) -> str:
        """Conv2d, cross-correlation, zero padding; `graph.window` describes kernel, stride, padding and dilation."""
        steps: Fields = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        attrs = conv_attrs(self.shape(source)[0], out, kernel, bias=bias, init=init, **steps)
        return self._add(name, "Conv2d", source, **attrs)

    def batchnorm(self, name: str, *, eps: float = 1e-5, momentum: float = 0.1, source: str = "") -> str:
        """BatchNorm2d; `momentum` is the weight of the new batch in the running statistics, as in torch."""
        return self._add(name, "BatchNorm2d", source, channels=self.shape(source)[0], eps=eps, momentum=momentum)

    relu = _plain("ReLU")
    relu6 = _plain("ReLU6")
    silu = _plain("SiLU", "x times the logistic function of x, also called swish.")
    hardsigmoid = _plain("HardSigmoid", "min(max(x + 3, 0), 6) / 6.")
    hardswish = _plain("HardSwish", "x times its hardsigmoid.")
    tanh = _plain("Tanh")
    sigmoid = _plain("Sigmoid")
    global_avgpool = _plain("GlobalAvgPool", "Mean over all positions of an image, or over the steps of a sequence.")
    flatten = _plain("Flatten", "Flatten to a vector in (C, H, W) order, whatever the framework's layout.")
    reverse = _plain("Reverse", "The steps of a sequence in reverse order; padding counts as steps.")
    last_step = _plain("Last")
    tokens = _plain(
        "Tokens", "The positions of an image, row by row, as the steps of a sequence with the channels as features."
    )

    def gelu(self, name: str, *, approximate: str = "none", source: str = "") -> str:
        """x times the normal distribution function of x: exact ("none"), or by a formula with tanh ("tanh")."""
        return self._add(name, "GELU", source, approximate=approximate)

    def maxpool(
        self,
        name: str,
        kernel: Numbers,
        *,
        stride: Numbers,
        padding: Numbers = 0,
        ceil_mode: bool = False,
        source: str = "",
    ) -> str:
        """Max pooling; padding is never the maximum; the output size is rounded down, or up with ceil_mode."""
        window = window_attrs(kernel, stride, padding)
        return self._add(name, "MaxPool2d", source, **window, **unless(False, ceil_mode=ceil_mode))

    def avgpool(
        self,
        name: str,
        kernel: Numbers,
        *,
        stride: Numbers,
        padding: Numbers = 0,
        count_include_pad: bool = False,
        ceil_mode: bool = False,
        source: str = "",
    ) -> str:
        """Average pooling; the output size is rounded down, or up with ceil_mode.

        count_include_pad: whether means at the edge count the padding; positions added by ceil_mode never count.
        """
        window = {**window_attrs(kernel, stride, padding), "count_include_pad": count_include_pad}
        return self._add(name, "AvgPool2d", source, **window, **unless(False, ceil_mode=ceil_mode))

    def adaptive_avgpool(self, name: str, output: Numbers, *, source: str = "") -> str:
        """Average pooling to this height and width; omitted if it would change nothing."""
        output = plain(output)
        size = [output] * 2 if isinstance(output, int) else output
        if list(self.shape(source)[1:]) == size:
            return source or self.last
        return self._add(name, "AdaptiveAvgPool2d", source, output=output)

    def linear(self, name: str, out: int, *, init: str = "normal_0.01", bias: bool = True, source: str = "") -> str:
        """Linear layer on the features: of a vector, of every step, or of every position of an image (its channels)."""
        return self._add(name, "Linear", source, **linear_attrs(self._features(source), out, bias=bias, init=init))

    def dropout(self, name: str, p: float, *, source: str = "") -> str:
        """Inverted dropout: zeroes a share p, scales the rest by 1 / (1 - p), in training only."""
        return self._add(name, "Dropout", source, p=p)

    def stochastic_depth(self, name: str, p: float, *, source: str = "") -> str:
        """Zeroes a share p of the samples of a batch, scales the rest by 1 / (1 - p), in training only (Huang 2016)."""
        return self._add(name, "StochasticDepth", source, p=p)

    def add(self, name: str, first: str, second: str) -> str:
        """Add two values of equal rank; axes of length 1 are broadcast."""
        return self._add(name, "Add", first, second)

    def mul(self, name: str, first: str, second: str) -> str:
        """Multiply two values, broadcast as `add` does."""
        return self._add(name, "Mul", first, second)

    def embedding(self, name: str, width: int, *, init: str = "uniform_0.05", source: str = "") -> str:
        """A row of `width` numbers for each token of an input; every row is trained, including that of padding."""
        source = source or self.last
        field = self._graph.inputs.get(source)
        if field is None or not field.vocabulary:
            raise self._refusal(f"layer {name}: expects an input of tokens, gets {source!r}")
        return self._add(name, "Embedding", source, num_embeddings=field.vocabulary, embedding_dim=width, init=init)

    def unembedding(self, name: str, embedding: str, *, source: str = "") -> str:
        """Logits of every step from the rows of an embedding, whose array it shares: a tied head."""
        attrs = next(node.attrs for node in self._nodes if node.name == embedding)
        return self._add(name, "Unembedding", source, **{**attrs, "arrays": attrs.get("arrays", embedding)})

    def rotary(self, name: str, heads: int, *, theta: float = 10000.0, source: str = "") -> str:
        """Encode positions by rotating pairs of a head's features (half-split): `attention.rotary_tables` has the angles."""
        return self._add(name, "Rotary", source, heads=heads, theta=theta)

    def lstm(self, name: str, hidden: int, *, source: str = "") -> str:
        """LSTM with one layer, one direction, zero initial state and one bias; gates in the order i, f, g, o."""
        return self._add(name, "LSTM", source, input_size=self.shape(source)[-1], hidden_size=hidden)

    def gru(self, name: str, hidden: int, *, source: str = "") -> str:
        """GRU with one layer, one direction, zero initial state and two biases; gates in the order r, z, n."""
        return self._add(name, "GRU", source, input_size=self.shape(source)[-1], hidden_size=hidden)

    def concat(self, name: str, *sources: str, axis: Optional[int] = None) -> str:
        """Concatenate the features of several values: of vectors, of each step, or of each position.

        axis: another axis of the shape without the batch; 0 joins the steps of sequences.
        """
        if axis is not None and axis == feature_axis(self.shape(sources[0])):
            axis = None
        return self._add(name, "Concat", *sources, **unless(None, axis=axis))

    def split(self, name: str, axis: int, sizes: Sequence[int], index: int, *, source: str = "") -> str:
        """Split an axis (not counting the batch) into parts of these sizes, and return one of them."""
        return self._add(name, "Split", source, axis=axis, sizes=list(sizes), index=index)

    def take(self, name: str, axis: int, start: int, end: int, *, step: int = 1, source: str = "") -> str:
        """Slice: every `step`-th element from `start` to before `end` of an axis (not counting the batch)."""
        return self._add(name, "Slice", source, axis=axis, start=start, end=end, **unless(1, step=step))

    def select(self, name: str, index: int, *, source: str = "") -> str:
        """One step of a sequence, counted from its end if negative."""
        return self._add(name, "Select", source, index=index)

    def channel_shuffle(self, name: str, groups: int, *, source: str = "") -> str:
        """Channel j of group g becomes channel g of group j (Zhang et al. 2018)."""
        return self._add(name, "ChannelShuffle", source, groups=groups)

    def parameter(self, name: str, shape: Sequence[int], *, init: str = "normal_0.02", trained: bool = True) -> str:
        """An array of the model itself, the same for each sample: a class token, positions, a scale of each channel.

        `add`, `mul` and `concat` combine it with other values. A constant is not trained.
        """
        return self._add(name, "Parameter", shape=list(shape), init=init, **unless(True, trained=trained))

    def constant(self, name: str, array: "ArrayLike") -> str:
        """An array of constants, the same for each sample."""
        return self._add(name, "Constant", **constant_attrs(array))

    def op(self, name: str, op: str, *sources: str, **attrs: object) -> str:
        """A primitive, or any op without a method of its own; see `graph.primitives`."""
        return self._add(name, op, *sources, **attrs)

    def attention(
        self,
        name: str,
        heads: int,
        *sources: str,
        scale: Optional[float] = None,
        bias: str = "",
        shifted: Optional[Tuple[Sequence[int], Sequence[int]]] = None,
        causal: bool = False,
        kv_heads: int = 0,
    ) -> str:
        """softmax(scale * q k' + bias) v in each head (Vaswani et al. 2017); projections around it are Linear layers.

        sources: q, k and v, or one value with their concatenated features. Each has its heads side by side.
        scale: default 1 / sqrt(features of a head). bias: (heads, steps, steps). shifted: a window's height and width,
        and by how much the map was rolled back: positions on different sides of its edge do not see each other. causal:
        a step sees itself and earlier ones. kv_heads: heads of keys and values, shared by groups of query heads.
        """
        inputs = sources or (self.last,)
        width = self.shape(inputs[0])[-1] // (3 if len(inputs) == 1 else 1)
        attrs: Fields = {"heads": heads, "scale": (width // heads) ** -0.5 if scale is None else scale}
        if shifted is not None:
            attrs.update(window=list(shifted[0]), mask_shift=list(shifted[1]))
        attrs.update(unless(heads, kv_heads=kv_heads or heads))
        return self._add(name, "Attention", *inputs, bias, **attrs, **unless(False, bias=bool(bias), causal=causal))

    def pad(self, name: str, padding: Sequence[int], *, value: float = 0.0, source: str = "") -> str:
        """Pad an image with a constant: rows above and below, columns left and right."""
        return self._add(name, "Pad", source, padding=list(padding), **unless(0.0, value=value))

    def roll(self, name: str, shifts: Sequence[int], *, source: str = "") -> str:
        """Move an image down and to the right; what leaves it re-enters on the other side."""
        return self._add(name, "Roll", source, shifts=list(shifts))

    def windows(self, name: str, window: Sequence[int], *, source: str = "") -> str:
        """Cut an image (channels, height, width) into windows: (rows, columns, positions in a window, channels)."""
        return self._add(name, "Windows", source, window=list(window))

    def from_windows(self, name: str, window: Sequence[int], *, source: str = "") -> str:
        """The image that consists of these windows."""
        return self._add(name, "FromWindows", source, window=list(window))

    def relative_bias(self, name: str, window: Sequence[int], heads: int, *, init: str = "normal_0.02") -> str:
        """A bias of attention in windows: per head, one number for each distance between two positions (Liu et al. 2021)."""
        return self._add(name, "RelativeBias", window=list(window), heads=heads, init=init)

    def conv1d(self, name: str, out: int, kernel: int, *, padding: int = 0, bias: bool = True) -> str:
        """Cross-correlation along the steps of a sequence, (steps, in) to (steps, out), zero padding on both ends."""
        return self._add(
            name,
            "Conv1d",
            in_channels=self.shape()[-1],
            out_channels=out,
            kernel=kernel,
            padding=padding,
            bias=bias,
            init="glorot_uniform",
        )

    def layernorm(self, name: str, *, eps: float = 1e-5, source: str = "") -> str:
        """Normalise the features, for an image its channels, with the biased variance (Ba et al. 2016)."""
        return self._add(name, "LayerNorm", source, features=self._features(source), eps=eps)

    def rmsnorm(self, name: str, *, eps: float = 1e-5, source: str = "") -> str:
        """Scale the features of a vector, or of each step: x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019)."""
        return self._add(name, "RMSNorm", source, features=self._features(source), eps=eps)

    def maxout(self, name: str, pieces: int) -> str:
        """Output j is the largest of the `pieces` features from j * pieces on (Goodfellow et al. 2013)."""
        return self._add(name, "Maxout", pieces=pieces)

    def quanv(self, name: str, gates: Sequence[Gate], *, trained: bool = False) -> str:
        """A simulated circuit of four qubits on each 2x2 patch of a grey image in [0, 1], stride 2.

        trained: the angles of the rotations are a parameter; otherwise they come from `gates` (see `circuit`).
        """
        listed = [[kind, list(qubits), angle] for kind, qubits, angle in gates]
        return self._add(name, "Quanv2d", gates=listed, trained=trained)

    def build(self) -> Graph:
        """The graph; UsageError where its output is not what the loss of a workload's task compares with the target."""
        graph, shape = dataclasses.replace(self._graph, nodes=tuple(self._nodes)), self.shape()
        task, expected = graph.task, graph.task.output_shape
        if not self._of_images and shape != expected:
            raise UsageError(f"{graph.name}: the last layer gives {shape}; {task.loss} of this task takes {expected}")
        return graph

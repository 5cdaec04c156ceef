"""Writes ONNX files as exporters, users and enemies do: `python onnx_files.py FOLDER`, where onnx is installed."""

import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)


class File:
    """Nodes and arrays of a file; each method adds a layer and returns the name of what it gives."""

    def __init__(self, image=("N", 3, 16, 16), opset=18, **model):
        self.nodes, self.arrays, self.opset, self.model = [], [], opset, model
        self.inputs = [helper.make_tensor_value_info("images", TensorProto.FLOAT, image)]

    def array(self, name, *shape, low=-0.5, high=0.5):
        values = RNG.uniform(low, high, shape).astype(np.float32)
        self.arrays.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, name, value, kind=np.int64):
        self.arrays.append(numpy_helper.from_array(np.array(value, kind), name))
        return name

    def node(self, op, *inputs, outputs=1, name="", **attrs):
        made = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, name or f"{op.lower()}{len(self.nodes)}", **attrs))
        return made[0] if outputs == 1 else made

    def conv(self, x, name, into, out, kernel=3, bias=False, **attrs):
        arrays = [self.array(f"{name}.weight", out, into // attrs.get("group", 1), kernel, kernel)]
        if bias:
            arrays.append(self.array(f"{name}.bias", out))
        attrs.setdefault("pads", [kernel // 2] * 4)
        if "auto_pad" in attrs:
            del attrs["pads"]
        return self.node("Conv", x, *arrays, kernel_shape=[kernel] * 2, **attrs)

    def norm(self, x, name, channels, **attrs):
        parts = (self.array(f"{name}.{part}", channels, low=low) for part, low in NORM.items())
        return self.node("BatchNormalization", x, *parts, **attrs)

    def write(self, path, output, classes=5):
        end = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", classes])
        graph = helper.make_graph(self.nodes, "net", self.inputs, [end], self.arrays)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("own", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8, **self.model), path)


NORM = {"weight": 0.2, "bias": -0.5, "running_mean": -0.5, "running_var": 0.2}


def head(net, x, width, classes=5):
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net.node("Gemm", x, net.array("fc.weight", classes, width), net.array("fc.bias", classes), transB=1)


def residual(path):
    """As torch's older exporter writes a residual network in training mode."""
    net = File(opset=17)
    x = net.norm(net.conv("images", "stem.0", 3, 8, strides=[2, 2]), "stem.1", 8, epsilon=1e-3, momentum=0.8)
    x = net.node("MaxPool", net.node("Relu", x), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = net.norm(net.conv(x, "block.conv", 8, 8, group=2), "block.norm", 8)
    low, high = net.constant("low", 0.0, np.float32), net.constant("high", 6.0, np.float32)
    x = net.node("Clip", net.node("Add", y, x), low, high)
    half, drops = net.constant("ratio", 0.3, np.float32), net.constant("mode", True, bool)
    x = net.node("Dropout", x, half, drops)
    shape = net.node("Concat", net.node("Unsqueeze", batch_of(net, x), net.constant("zero", [0])),
                     net.constant("rest", [-1]), axis=0)  # fmt: skip
    x = net.node("Reshape", net.node("GlobalAveragePool", x), shape)
    net.write(path, net.node("Gemm", x, net.array("fc.weight", 5, 8), net.array("fc.bias", 5), transB=1))


def batch_of(net, x):
    return net.node("Gather", net.node("Shape", x), net.constant("first", 0), axis=0)


def gates(path):
    """Gates, branches, unequal padding, old opsets' attributes, arrays without names, a softmax, a head not used."""
    net = File(image=(1, 3, 16, 16), opset=9)
    x = net.node("Relu", net.conv("images", "c1", 3, 8, bias=True, auto_pad="SAME_UPPER", strides=[2, 2]))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    y = net.node("Conv", x, net.array("W7", 8, 8, 1, 3), kernel_shape=[1, 3], pads=[0, 1, 0, 1])
    y = net.node("Mul", y, net.node("Sigmoid", y))
    squeezed = net.node("GlobalAveragePool", y)
    gate = net.node("HardSigmoid", net.conv(squeezed, "se", 8, 8, 1, bias=True), alpha=1 / 6)
    y = net.node("Mul", gate, y)
    x = net.node("Concat", net.node("Clip", y, min=0.0, max=6.0), x, axis=1)
    x = net.node("AveragePool", x, kernel_shape=[2, 2], strides=[1, 1])
    net.node("Gemm", net.node("Flatten", x), net.array("aux", 144, 3), net.array("aux_b", 3))
    x = net.node("Dropout", x, ratio=0.1)
    x = net.node("Reshape", x, net.constant("flat", [1, -1]))
    x = net.node("MatMul", x, net.array("head_w", 144, 5))
    net.write(path, net.node("Softmax", net.node("Add", net.array("head_b", 5), x), axis=1))


def channels_last(path):
    """As tf2onnx writes a Keras model of which it has left BatchNorm."""
    net = File(image=("N", 16, 16, 3), producer_name="tf2onnx")
    x = net.node("Transpose", "images", perm=[0, 3, 1, 2])
    x = net.norm(net.conv(x, "model/conv/Conv2D", 3, 6, 3, auto_pad="SAME_UPPER", strides=[2, 2]), "model/bn", 6)
    x = net.node("Transpose", net.node("Relu", x), perm=[0, 2, 3, 1])
    x = net.node("ReduceMean", x, net.constant("axes", [1, 2]), keepdims=0)
    x = net.node("MatMul", x, net.array("model/dense/kernel", 6, 5))
    net.write(path, net.node("Add", x, net.array("model/dense/bias", 5)))


def gelu(path):
    """A free parameter, an erf, a transposed weight, and a norm that is one node."""
    net = File(opset=17)
    x = net.node("Reshape", net.conv("images", "patch", 3, 8, 4, bias=True, strides=[4, 4], pads=[0] * 4),
                 net.constant("tokens", [0, 8, -1]))  # fmt: skip
    x = net.node("Add", net.node("Transpose", x, perm=[0, 2, 1]), net.array("position", 1, 16, 8))
    x = net.node("LayerNormalization", x, net.array("norm.weight", 8), net.array("norm.bias", 8), epsilon=1e-6)
    x = net.node("MatMul", x, net.node("Transpose", net.array("mlp.weight", 12, 8), perm=[1, 0]))
    x = net.node("Add", net.array("mlp.bias", 12), x)
    one, half, root = (net.constant(n, v, np.float32) for n, v in (("one", 1), ("half", 0.5), ("root", 2**0.5)))
    y = net.node("Add", net.node("Erf", net.node("Div", x, root)), one)
    x = net.node("Mul", net.node("Mul", x, y), half)
    x = net.node("ReduceMean", x, axes=[1], keepdims=0)
    net.write(path, net.node("Gemm", x, net.array("fc.weight", 5, 12), net.array("fc.bias", 5), transB=1))


def tanh(path):
    """The tanh form of GELU, and a bilinear form by einsum."""
    net = File(opset=20)
    x = net.node("Gelu", net.node("ReduceMean", net.conv("images", "conv", 3, 6), net.constant("axes", [2, 3]), keepdims=0),
                 approximate="tanh")  # fmt: skip
    x = net.node("Einsum", x, net.array("form", 5, 6, 6, low=-2, high=2), x, equation="bi,kij,bj->bk")
    net.write(path, net.node("Add", x, net.array("bias", 5)))


def upsampled(path):
    """As torch exports a segmentation net: resized, transposed, repeated, and by numbers known from shapes alone."""
    net = File()
    x = net.node("Relu", net.conv("images", "down", 3, 8, strides=[2, 2]))
    x = net.node("InstanceNormalization", x, net.array("norm.weight", 8, low=0.2), net.array("norm.bias", 8))
    y = net.node("ConvTranspose", x, net.array("up.weight", 8, 6, 3, 3), net.array("up.bias", 6), kernel_shape=[3, 3],
                 strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])  # fmt: skip
    sizes = net.node("Concat", net.node("Shape", x, start=0, end=2), net.node("Shape", "images", start=2), axis=0)
    x = net.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    mean = net.node("ReduceMean", x, net.constant("channels", [1]))
    y = net.node("Max", y, net.node("Tile", mean, net.constant("six", [1, 6, 1, 1])))
    bounds = [net.constant(name, [n]) for name, n in (("from", -1), ("to", -(2**62)), ("axis", 3), ("step", -1))]
    y = net.node("Slice", y, *bounds)
    width = net.node("Gather", net.node("Shape", "images"), net.constant("third", 3))
    zero, one, base = net.constant("zero", 0), net.constant("one", 1), net.constant("base", 100, np.float32)
    steps = net.node("Cast", net.node("Range", zero, width, one), to=TensorProto.FLOAT)
    power = net.node("Pow", base, net.node("Div", steps, net.constant("eight", 8, np.float32)))
    y = net.node("Mul", y, net.node("Cos", power))
    net.write(path, head(net, y, 6))


def plain(path, **changes):
    """A small network, with something the matter."""
    net = File(image=changes.get("image", ("N", 3, 16, 16)), opset=changes.get("opset", 18))
    weight = changes.get("weight", "conv.weight")
    x = net.node("Conv", "images", net.array(weight, 4, 3, 3, 3), kernel_shape=[3, 3])
    if "inputs" in changes:
        net.inputs.append(helper.make_tensor_value_info("masks", TensorProto.FLOAT, ["N", 4, 14, 14]))
        x = net.node("Mul", x, "masks")
    for op, attrs in changes.get("ops", ()):
        net.nodes.append(helper.make_node(op, [x], [f"{x}_"], f"/neck/{op}{len(net.nodes)}", **attrs))
        x = f"{x}_"
    if "rule" in changes:
        net.nodes[0].metadata_props.add(key="pkg.onnxscript.rewriter.rule_name", value=changes["rule"])
    if "outside" in changes:
        tensor = net.arrays[0]
        onnx.external_data_helper.set_external_data(tensor, changes["outside"])
        tensor.ClearField("raw_data")
    net.write(path, head(net, x, 4))


def huge(path):
    """Claims weights of 4 GB."""
    plain(path, outside="huge.bin")
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[0] = 40_000_000
    onnx.save(model, path)


def nothing(path):
    """No network at all."""
    with open(path, "wb") as file:
        file.write(helper.make_model(helper.make_graph([], "net", [], [])).SerializeToString())


def arrays(path):
    """Save a model of a row and of tokens, which the file orders otherwise; two outputs; 1 / 3 computed in float32."""
    net = File()
    net.inputs = [
        helper.make_tensor_value_info("user", TensorProto.INT64, ["N", 3]),
        helper.make_tensor_value_info("row", TensorProto.FLOAT, ["N", 5]),
    ]
    rows = net.node("Gather", net.array("table", 7, 4), "user")
    third = net.node("Div", net.constant("one", 1, np.float32), net.constant("three", 3, np.float32))
    mean = net.node("Mul", net.node("ReduceSum", rows, net.constant("axis", [1]), keepdims=0), third)
    x = net.node("Concat", mean, net.norm("row", "norm", 5), axis=1)
    parts = [net.node("Gemm", x, net.array(f"{name}.weight", out, 9), transB=1) for name, out in HEADS.items()]
    ends = [net.node("Sigmoid", parts[0], name="probability"), parts[1]]
    infos = [
        helper.make_tensor_value_info(end, TensorProto.FLOAT, ["N", out]) for end, out in zip(ends, HEADS.values())
    ]
    graph = helper.make_graph(net.nodes, "net", net.inputs, infos, net.arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


HEADS = {"yes": 1, "amount": 2}


def main(folder):
    os.chdir(folder)
    for write in (residual, gates, channels_last, gelu, tanh, upsampled, arrays, huge, nothing):
        write(f"{write.__name__}.onnx")
    plain("unknown.onnx", ops=[("LRN", {"size": 3}), ("SpaceToDepth", {"blocksize": 1}), ("LRN", {"size": 3})])
    plain("foreign.onnx", ops=[("Secret", {"domain": "own"})])
    plain("known.onnx", ops=[("Sin", {}), ("LeakyRelu", {}), ("Sin", {})])
    plain("folded_old.onnx", weight="onnx::Conv_193")
    plain("folded_tf.onnx", weight="model/conv/Conv2D_weights_fused_bn")
    plain("folded_new.onnx", rule="FuseBatchNormIntoConv")
    plain("biases.onnx", rule="RemoveOptionalBiasFromConv")
    plain("inputs.onnx", inputs=True)
    plain("size.onnx", image=("N", 3, 8, 8))
    plain("grey.onnx", image=("N", 1, 16, 16))
    plain("outside.onnx", outside="../secret.bin")
    plain("absolute.onnx", outside="/etc/passwd")
    plain("absent.onnx", outside="absent.bin")
    plain("whole.onnx")
    with open("whole.onnx", "rb") as file:
        content = file.read()
    with open("truncated.onnx", "wb") as file:
        file.write(content[: len(content) // 2])


if __name__ == "__main__":
    main(sys.argv[1])

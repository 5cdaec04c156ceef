"""MXNet as its gluon tutorials have it: blocks hybridised with static memory, gluon.Trainer with Adam."""

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn


class Forecast(gluon.HybridBlock):
    """Dropout as layers: on a CPU that of rnn.LSTM(50, num_layers=4, dropout=0.2) drops nothing in training (1.9.1)."""

    def __init__(self):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(rnn.LSTM(50, layout="NTC", input_size=1))
        for _ in range(3):
            self.body.add(nn.Dropout(0.2), rnn.LSTM(50, layout="NTC", input_size=50))
        self.dropout, self.fc = nn.Dropout(0.2), nn.Dense(1)

    def hybrid_forward(self, F, x):
        return self.fc(self.dropout(F.slice_axis(self.body(x), axis=1, begin=-1, end=None)))


class Tagger(gluon.HybridBlock):
    def __init__(self, vocabulary, outputs):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 64)
        self.lstm = rnn.LSTM(64, layout="NTC", bidirectional=True, input_size=64)
        self.dropout, self.fc = nn.Dropout(0.5), nn.Dense(outputs, flatten=False)

    def hybrid_forward(self, F, x):
        return self.fc(self.dropout(self.lstm(self.embedding(x))))


def tiny_cnn(outputs):
    network = nn.HybridSequential()
    for index, (out, stride) in enumerate([(64, 1), (128, 1), (128, 2), (256, 1), (256, 2), (512, 1)]):
        network.add(nn.Conv2D(out, 3, stride, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
        if index == 0:
            network.add(nn.MaxPool2D(3, 2, 1))
    network.add(nn.AvgPool2D(3, 2, 1, count_include_pad=True), nn.Flatten(), nn.Dense(outputs))
    return network


def diabetes_ann(outputs):
    network = nn.HybridSequential()
    for _ in range(2):
        network.add(nn.Dense(32, activation="relu"), nn.Dropout(0.2))
    network.add(nn.Dense(outputs))
    return network


def make(model, inputs, target, task, threads):
    """Steps on one batch, and the number of parameters."""
    network, loss_of = {
        "tweet_span": lambda: (Tagger(task.inputs[0].vocabulary, task.outputs), gluon.loss.SoftmaxCrossEntropyLoss()),
        "lstm_ibm": lambda: (Forecast(), gluon.loss.L2Loss(weight=2.0)),
        "tiny_cnn": lambda: (tiny_cnn(task.outputs), gluon.loss.SoftmaxCrossEntropyLoss()),
        "diabetes_ann": lambda: (diabetes_ann(task.outputs), gluon.loss.SigmoidBinaryCrossEntropyLoss()),
    }[model]()
    network.initialize(mx.init.Xavier())
    network.hybridize(static_alloc=True, static_shape=True)
    loss_of.hybridize()
    trainer = gluon.Trainer(network.collect_params(), "adam", {"learning_rate": 0.001, "epsilon": 1e-7})
    x, y = mx.nd.array(inputs), mx.nd.array(target)
    masks, tokens = (), len(target)
    if model == "tweet_span":  # a sample's loss is a mean over all its tokens
        masks = (mx.nd.array((target >= 0)[..., None]),)
        tokens = float((target >= 0).sum()) / target.shape[1]
        y = mx.nd.maximum(y, 0)

    def go(steps):
        for _ in range(steps):
            with autograd.record():
                loss = loss_of(network(x), y, *masks)
            loss.backward()
            trainer.step(tokens)
            loss.mean().asscalar()
        mx.nd.waitall()  # the engine still runs the backward pass when the loss is read

    go(1)  # shapes are known now
    return go, sum(p.data().size for p in network.collect_params().values() if p.grad_req != "null")

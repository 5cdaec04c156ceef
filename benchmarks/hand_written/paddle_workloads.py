"""PaddlePaddle as its tutorials have it: nn layers in the dynamic graph, Adam, a loss that is read in each step."""

import paddle
from paddle import nn


class Forecast(nn.Layer):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 50, num_layers=4, dropout=0.2)
        self.dropout, self.fc = nn.Dropout(0.2), nn.Linear(50, 1)

    def forward(self, x):
        return self.fc(self.dropout(self.lstm(x)[0][:, -1]))


class Tagger(nn.Layer):
    def __init__(self, vocabulary, outputs):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 64)
        self.lstm = nn.LSTM(64, 64, direction="bidirect")
        self.dropout, self.fc = nn.Dropout(0.5), nn.Linear(128, outputs)

    def forward(self, x):
        return self.fc(self.dropout(self.lstm(self.embedding(x))[0]))


def tiny_cnn(outputs):
    layers, channels = [], 3
    for index, (out, stride) in enumerate([(64, 1), (128, 1), (128, 2), (256, 1), (256, 2), (512, 1)]):
        layers += [nn.Conv2D(channels, out, 3, stride, 1, bias_attr=False), nn.BatchNorm2D(out), nn.ReLU()]
        layers += [nn.MaxPool2D(3, 2, 1)] if index == 0 else []
        channels = out
    return nn.Sequential(*layers, nn.AvgPool2D(3, 2, 1, exclusive=False), nn.Flatten(), nn.Linear(512 * 16, outputs))


def diabetes_ann(outputs):
    blocks = [nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*blocks, nn.Linear(32, outputs))


def make(model, inputs, target, task, threads):
    """Steps on one batch, and the number of parameters."""
    x, y = paddle.to_tensor(inputs), paddle.to_tensor(target)
    network, criterion = {
        "tweet_span": lambda: (Tagger(task.inputs[0].vocabulary, task.outputs), nn.CrossEntropyLoss(ignore_index=-1)),
        "lstm_ibm": lambda: (Forecast(), nn.MSELoss()),
        "tiny_cnn": lambda: (tiny_cnn(task.outputs), nn.CrossEntropyLoss()),
        "diabetes_ann": lambda: (diabetes_ann(task.outputs), nn.BCEWithLogitsLoss()),
    }[model]()
    optimizer = paddle.optimizer.Adam(learning_rate=0.001, epsilon=1e-7, parameters=network.parameters())

    def go(steps):
        for _ in range(steps):
            loss = criterion(network(x), y)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            float(loss)

    return go, sum(p.size for p in network.parameters() if not p.stop_gradient)

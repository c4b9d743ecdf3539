"""Flower: the central wrappers, the accountant, LocalDpMod and the quantisation of SecAgg+."""

import logging
import warnings
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.task_identity import TaskIdentity
from probe import printed, std_of

SIZE = 40_000
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


def reply(update, examples):
    content = RecordDict(
        {
            "arrays": ArrayRecord([np.asarray(update, dtype=np.float64)]),
            "metrics": MetricRecord({"num-examples": examples}),
        }
    )
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    return Message(content, reply_to=message)


def averaged(strategy, updates, examples):
    """The average that a strategy releases for these updates of a model of zeros."""
    strategy.current_arrays = ArrayRecord([np.zeros(SIZE)])
    replies = [reply(u, n) for u, n in zip(updates, examples, strict=True)]
    arrays, _ = strategy.aggregate_train(1, replies)
    return arrays.to_numpy_ndarrays()[0]


def fixed(answers, examples):
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 10)
    zeros = [np.full(SIZE, 1e-12)] * answers
    noise = averaged(strategy, zeros, examples)
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 1.0, 10)
    one = [np.full(SIZE, 3.0), *zeros[1:]]
    moved = np.linalg.norm(averaged(strategy, one, examples))
    return std_of(noise), float(moved)


def adaptive(size):
    strategy = DifferentialPrivacyServerSideAdaptiveClipping(
        FedAvg(), 1.0, 20, initial_clipping_norm=0.1, clip_norm_lr=0.2
    )
    used = strategy.clipping_norm
    # Updates in pairs of opposite signs: the clipped sum is 0.
    updates = [np.full(SIZE, size * (-1) ** k) for k in range(20)]
    noise = averaged(strategy, updates, [1] * 20)
    return used, strategy.clipping_norm, strategy.noise_multiplier, std_of(noise)


def local():
    mod = LocalDpMod(1.0, 1.0, 1.0, 1e-5)
    start = Message(
        RecordDict({"arrays": ArrayRecord([np.zeros(SIZE)])}), dst_node_id=1, message_type="train"
    )
    out = mod(start, SimpleNamespace(), lambda m, c: reply(np.full(SIZE, 1e-12), 10))
    noise = next(iter(out.content.array_records.values())).to_numpy_ndarrays()[0]
    return std_of(noise)


def secure():
    values = [np.random.default_rng(0).uniform(-1, 1, SIZE)]
    back = dequantize(quantize(values, 8.0, 2**22), 8.0, 2**22)
    return std_of(back[0] - values[0])


def main():
    full_std, full_move = fixed(10, [100] * 10)
    part_std, part_move = fixed(7, [100] * 7)
    heavy_std, heavy_move = fixed(10, [991, *[1] * 9])
    used, after, multiplier, adaptive_std = adaptive(1.0)
    name = f"Flower {version('flwr')}"
    rows = [
        {
            "program": name,
            "option": "server-side fixed clipping, z 1, C 1, 10 sampled, all answer, equal weights",
            "clipped": "update of a client, one norm over all arrays",
            "noise": f"{full_std:.4f} on the average; one client moves it by {full_move:.4f}",
            "sampled": "fixed number of connected clients",
            "printed": "none without accountant=",
            "needs": "zero_out or replace_one",
            "ratio": full_std / full_move,
        },
        {
            "program": name,
            "option": "the same, 7 of 10 answer",
            "clipped": "the same",
            "noise": f"{part_std:.4f} on the average; one client moves it by {part_move:.4f}",
            "sampled": "the same",
            "printed": "none; a warning",
            "needs": "all sampled clients answer",
            "ratio": part_std / part_move,
        },
        {
            "program": name,
            "option": "the same, all answer, one client has 991 of 1,000 examples",
            "clipped": "the same",
            "noise": f"{heavy_std:.4f} on the average; that client moves it by {heavy_move:.4f}",
            "sampled": "the same",
            "printed": "none",
            "needs": "equal numbers of examples",
            "ratio": heavy_std / heavy_move,
        },
        {
            "program": name,
            "option": "server-side adaptive clipping, z 1, 20 clients, all updates above the norm",
            "clipped": f"update of a client to {used:.4f}; the next norm is {after:.4f}",
            "noise": f"{adaptive_std:.5f} on the average, multiplier {multiplier:.4f}",
            "sampled": "the same",
            "printed": "none",
            "needs": "noise from the norm that clipped",
            # The clipping bits have the noise that the strategy sets aside for them.
            "ratio": (1 / (adaptive_std / (used / 20)) ** 2 + 1 - 1 / multiplier**2) ** -0.5,
        },
        {
            "program": name,
            "option": "LocalDpMod, C 1, sensitivity 1, epsilon 1, delta 1e-5",
            "clipped": "update of a client, one norm over all arrays",
            "noise": f"{local():.4f} on the update",
            "sampled": "each client by itself; the server sees it",
            "printed": "none; epsilon is an argument",
            "needs": "updates that differ by 1, not by 2 C",
            "ratio": local(),
        },
        {
            "program": name,
            "option": "SecAgg+, range 8, 22 bits",
            "clipped": "each number to [-8, 8]",
            "noise": f"{secure():.2e}, rounding and no privacy noise",
            "sampled": "-",
            "printed": "none",
            "needs": "a mod with noise before it",
            "ratio": None,
        },
    ]
    printed(rows)


main()

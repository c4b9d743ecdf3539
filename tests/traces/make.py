"""Make the records of this folder with the libraries that write them.

    python tests/contract/traces/make.py

It needs opacus 1.6, flwr[app] 1.35 or later and dp-accounting 0.6 in a separate environment. The
files are committed, so the tests do not need these libraries.
"""

import csv
import json
import warnings
from pathlib import Path

import dp_accounting as dpa
import torch
from dp_accounting import pld, rdp
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from opacus import PrivacyEngine
from opacus.accountants import create_accountant

HERE = Path(__file__).parent


def write(name, data):
    (HERE / name).write_text(json.dumps(data) + "\n", encoding="utf-8")


def opacus():
    """One history as two accountants keep it, and a checkpoint of a real training step."""
    said = {}
    for mechanism in ("gdp", "rdp"):
        accountant = create_accountant(mechanism=mechanism)
        for _ in range(50):
            accountant.step(noise_multiplier=3.0, sample_rate=0.2)
        write(f"opacus_{mechanism}.json", accountant.state_dict())
        said[f"opacus_{mechanism}"] = accountant.get_epsilon(delta=1 / 48000)
    engine = PrivacyEngine(accountant="rdp")
    network = torch.nn.Linear(1, 1)
    data = torch.utils.data.TensorDataset(torch.randn(20, 1), torch.randn(20, 1))
    network, optimizer, loader = engine.make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=4),
        noise_multiplier=3.0,
        max_grad_norm=1.0,
    )
    steps = 0
    while steps < 5:
        for x, y in loader:
            if steps < 5 and len(x):
                optimizer.zero_grad()
                ((network(x) - y) ** 2).mean().backward()
                optimizer.step()
                steps += 1
    engine.save_checkpoint(path=HERE / "opacus.pt", module=network, optimizer=optimizer)
    return said


def flower():
    """A fixed-size run under replace-one, which Flower's account takes to move by C."""
    config = PrivacyConfig(
        7e-5, 6000, NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT
    )
    accountant = RdpAccountant(config)
    accountant.compose(GaussianPrivacyEvent(1.4, 100, 6000), 180)
    write("flower.json", accountant.state_dict())
    return {"flower": accountant.get_epsilon(7e-5)}


def events():
    """One event in the two ways that dp-accounting's named tuples become JSON."""
    event = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(1.0)), 30)
    write("event_list.json", event.to_named_tuple())

    def objects(value):
        if not hasattr(value, "_asdict"):
            return value
        return {name: objects(each) for name, each in value._asdict().items()}

    write("event.json", objects(event.to_named_tuple()))
    accountant = rdp.RdpAccountant()
    accountant.compose(event)
    return {"event": accountant.get_epsilon(1e-5)}


def faults():
    """Accounts that are wrong by how they were kept, and their right twins."""
    said = {}
    for name, steps in (("rounds", 30), ("steps", 300)):
        accountant = create_accountant(mechanism="rdp")
        for _ in range(steps):
            accountant.step(noise_multiplier=1.5, sample_rate=0.05)
        write(f"opacus_{name}.json", accountant.state_dict())
        said[f"opacus_{name}"] = accountant.get_epsilon(delta=1e-5)
    config = PrivacyConfig(
        1e-5, 50, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    )
    accountant = RdpAccountant(config)
    accountant.compose(GaussianPrivacyEvent(4.0, 50, 50), 20)
    write("flower_shares.json", accountant.state_dict())
    said["flower_shares"] = accountant.get_epsilon(1e-5)
    for name, steps in (("floor", 10 * int(1000 / 64)), ("ceiling", 10 * -(-1000 // 64))):
        step = dpa.PoissonSampledDpEvent(64 / 1000, dpa.GaussianDpEvent(1.2))
        event = dpa.SelfComposedDpEvent(step, steps)
        write(f"event_{name}.json", event.to_named_tuple())
        accountant = pld.PLDAccountant()
        accountant.compose(event)
        said[f"event_{name}"] = accountant.get_epsilon(1e-5)
    return said


def tables():
    """A log of fixed-size rounds, and one of an epoch-wise pass, as a loop would write them."""
    with open(HERE / "fixed.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["round", "noise_std", "clip_norm", "cohort", "population", "sampling"])
        rows.writerows([i, 2.8, 2.0, 100, 6000, "fixed"] for i in range(180))
    # Twice the noise for twice the move: the account of flower_shares.json, under replace_one.
    with open(HERE / "shares.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["round", "noise_multiplier", "cohort", "population", "sampling"])
        rows.writerows([i, 8.0, 50, 50, "everyone"] for i in range(20))
    with open(HERE / "shuffled.jsonl", "w", encoding="utf-8") as file:
        for i in range(40):
            known = {"sampling": "shuffled", "rounds_per_epoch": 20}
            file.write(json.dumps({"round": i + 1, "noise_multiplier": 1.1} | known) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    said = opacus() | flower() | events() | faults()
    tables()
    write("said.json", said)

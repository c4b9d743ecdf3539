"""PLD_accounting: random allocation, and Poisson sampling of a distribution of losses."""

from importlib.metadata import version

from PLD_accounting import gaussian_allocation_epsilon_range

NAME, VERSION, ANSWERS = "PLD_accounting", version("PLD_accounting"), "bounds"


def epsilon(case):
    run = case.get("run") or {}
    epochs = 1
    if run.get("type") == "Run" and len(run["fields"]["parts"]) == 1:
        [[run, epochs]] = run["fields"]["parts"]
    scheme = run.get("fields", {}).get("scheme", {})
    if scheme.get("type") != "RandomAllocation" or case["adjacency"] == "replace_one":
        raise NotImplementedError("only random allocation of a record or of none")
    high, low = gaussian_allocation_epsilon_range(
        delta=case["delta"],
        sigma=run["fields"]["inner"]["fields"]["noise_multiplier"],
        num_steps=scheme["fields"]["rounds_per_epoch"],
        num_selected=scheme["fields"].get("take", 1),
        num_epochs=epochs,
    )
    return low, high

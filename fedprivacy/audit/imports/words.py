"""Common words of files for facts: names of fields, sampling schemes and adjacencies.

``settle`` reads the facts that a reader of one program left open. A word with two meanings is no
answer: the fact stays a question, which quotes the field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from ...relations import Adjacency, Unit
from .draft import Draft, refuse_unauditable
from .fields import Field, Fields, plain_name
from .trace import Sampling
from .vocabulary import words_of

NOISE: tuple[str, ...] = ("noise_multiplier", "noise_mult", "dp_noise_multiplier", "dp_noise_mult")
NOISE += ("server_noise_multiplier", "target_noise_multiplier")
UNCLEAR: tuple[str, ...] = ("sigma", "noise", "noise_std", "noise_stddev", "noise_scale", "std")
UNCLEAR += ("stddev", "noise_level", "dp_sigma", "dp_noise", "noise_sigma", "z", "noise_variance")
UNCLEAR += ("noise_factor", "noise_magnitude", "noise_coefficient", "noise_parameter")
UNCLEAR += ("dp_noise_std", "noise_std_dev", "gaussian_std", "noise_multiplier_sigma", "dp_std")
"""Names of a noise that may be a std, a variance, a scale or a multiplier."""
EPSILON: tuple[str, ...] = ("epsilon", "target_epsilon", "eps", "final_epsilon", "epsilon_spent")
EPSILON += ("dp_epsilon", "epsilon_budget", "max_epsilon", "target_eps", "total_epsilon")
EPSILON += ("privacy_epsilon", "achieved_epsilon", "dp_eps", "privacy_budget", "eps_total")
DELTA = ("delta", "target_delta", "dp_delta", "privacy_delta", "max_delta")
ROUNDS: tuple[str, ...] = ("rounds", "num_rounds", "total_rounds", "global_rounds", "n_rounds")
ROUNDS += ("comm_rounds", "comm_round", "communication_rounds", "fl_rounds", "max_rounds")
ROUNDS += ("num_server_rounds", "global_epochs", "server_rounds", "n_server_rounds")
ROUNDS += ("fed_rounds", "federated_rounds", "training_rounds", "max_round", "num_round")
STEPS: tuple[str, ...] = ("steps", "num_steps", "total_steps", "train_steps", "max_steps")
STEPS += ("num_iterations", "num_updates", "n_steps", "num_train_steps", "num_training_steps")
STEPS += ("iterations", "max_iterations", "total_iterations", "num_iters", "steps_completed")
STEPS += ("num_compositions", "compositions")
RATE: tuple[str, ...] = ("sampling_probability", "sample_rate", "sampling_rate", "sampling_prob")
RATE += ("sample_prob", "sample_probability", "subsampling_rate", "subsample_rate", "sampling_q")
RATE += ("subsampling_probability", "subsampling_ratio", "sampling_ratio", "sample_ratio")
RATE += ("subsampling_prob", "sampling_fraction", "inclusion_probability")
EPOCHS: tuple[str, ...] = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs")
EPOCHS += ("total_epochs", "n_epoch", "num_epoch")
PER_EPOCH = ("rounds_per_epoch", "steps_per_epoch", "batches_per_epoch")
CLIENT_RATE: tuple[str, ...] = ("client_sampling_rate", "client_sample_rate", "participation_rate")
CLIENT_RATE += ("client_sampling_probability", "participation_probability", "client_fraction")
CLIENT_RATE += ("fraction_fit", "fraction_train", "frac", "fraction", "sample_fraction")
CLIENT_RATE += ("participation_fraction", "user_sampling_rate", "sample_client_rate")
COHORT: tuple[str, ...] = ("clients_per_round", "num_clients_per_round", "users_per_round")
COHORT += ("cohort_size", "cohort", "num_sampled_clients", "participants_per_round")
COHORT += ("num_selected_clients", "client_num_per_round", "selected_clients", "per_round")
POPULATION: tuple[str, ...] = ("num_clients", "total_clients", "n_clients", "num_total_clients")
POPULATION += ("num_users", "total_users", "client_num_in_total", "population", "client_num")
POPULATION += ("population_size", "number_of_clients", "num_supernodes", "clients")
BATCH = ("batch_size", "lot_size", "train_batch_size", "logical_batch_size", "minibatch_size")
RECORDS: tuple[str, ...] = ("dataset_size", "train_size", "trainset_size", "num_train_samples")
RECORDS += ("sample_size", "num_examples", "num_samples", "n_train", "num_train_examples")
RECORDS += ("number_of_examples", "num_train", "training_set_size", "n_samples")

PRIVACY = {"dp", "ldp", "cdp", "privacy", "private", "privately", "differential", "dpsgd"}
"""Words of fields about privacy."""
SWITCHES = {"enable", "enabled", "use", "apply", "active", "on", "add", "true"}
"""Words of a field that turns a part of a run on or off. YAML reads the name on as true."""
REAL = {"actual", "real", "effective", "completed", "final", "done", "taken", "ran", "executed"}
REAL |= {"used", "observed", "finished", "performed", "run", "trained", "empirical"}
REAL |= {"true", "measured"}
"""Words of a number that a run had, whatever its settings say."""

_ADJACENCY: tuple[str, ...] = ("adjacency", "neighboring_relation", "neighbouring_relation")
_ADJACENCY += ("neighbor_relation", "neighbour_relation", "neighboring", "neighbouring")
_ADJACENCY += ("neighborhood", "neighbourhood", "neighbors", "neighbours", "dp_definition")
_ADJACENCY += ("adjacency_relation", "relation", "neighboring_datasets", "neighbouring_datasets")
SAMPLING: tuple[str, ...] = ("sampling", "subsampling", "sampling_method", "sampling_scheme")
SAMPLING += ("sampling_type", "sampling_strategy", "batch_sampling", "batch_sampler", "sampler")
SAMPLING += ("minibatch_sampling", "cohort_sampling", "client_sampling", "subsampling_method")
SAMPLING += ("batching", "batch_selection", "sampling_mode", "data_sampling", "client_selection")
_UNIT = ("unit", "privacy_unit", "unit_of_privacy", "privacy_level", "dp_level", "granularity")
_CLIENTS = {"client", "clients", "user", "users", "device", "devices", "silo", "site"}
_RECORDS = {"record", "records", "sample", "samples", "example", "examples", "instance", "item"}


def _any(words: set[str], *known: str) -> bool:
    return bool(words & {*known})


def adjacency_in(text: str) -> Adjacency | None:
    """Return the adjacency that a text names; None if it names none, or several."""
    words = {*plain_name(text).split("_")}
    zero = _any(words, "zero", "zeroed", "zeroing", "special", "zeroout")
    add = _any(words, "unbounded", "addition", "added", "adding", "addremove")
    add |= "add" in words and _any(words, "remove", "removal", "removed", "delete")
    one = _any(words, "bounded", "substitution", "substitute", "swap", "replacement", "replaced")
    one |= _any(words, "replace", "replaceone", "change") and not zero
    found = {Adjacency.ADD_REMOVE: add, Adjacency.ZERO_OUT: zero, Adjacency.REPLACE_ONE: one}
    named = [kind for kind, said in found.items() if said]
    return named[0] if len(named) == 1 and not words & _DENIED else None


_DENIED = {"not", "no", "non", "unknown", "false"}


_WHOLE: tuple[set[str], ...] = ({"everyone"}, {"full", "participation"}, {"full", "batch"})
_WHOLE += ({"all", "clients"}, {"all", "users"})


def sampling_in(text: str) -> Sampling | None:
    """Return the scheme that a text names; None if it names none, or several."""
    words = {*plain_name(text).split("_")} - {"sampling", "subsampling", "sampler", "batches"}
    without = words >= {"without", "replacement"}
    found = {
        Sampling.POISSON: _any(words, "poisson", "bernoulli"),
        Sampling.FIXED: without or words in ({"fixed"}, {"fixed", "size"}, {"swor"}, {"wor"}),
        Sampling.WITH_REPLACEMENT: words >= {"with", "replacement"} and not without,
        Sampling.SHUFFLED: _any(words, "shuffle", "shuffled", "shuffling", "reshuffling")
        or plain_name(text) in ("random_sampler", "torch_utils_data_random_sampler"),
        Sampling.ALLOCATION: words in ({"allocation"}, {"random", "allocation"}),
        Sampling.EVERYONE: words in _WHOLE,
    }
    named = [kind for kind, said in found.items() if said]
    return named[0] if len(named) == 1 and not words & _DENIED else None


def unit_in(text: str) -> Unit | None:
    """Return the privacy unit that a text names; None if it names none, or both."""
    words = {*plain_name(text).split("_")}
    found = {Unit.CLIENT: words & _CLIENTS, Unit.RECORD: words & _RECORDS}
    named = [kind for kind, said in found.items() if said]
    return named[0] if len(named) == 1 else None


def settle(draft: Draft, name: str) -> None:
    """Read the facts that a reader left open and that the file states in common words.

    Raises:
        ConversionError: if the file says that the run is not private.
    """
    _check_private(draft, name)
    known = draft.facts.get("unit")
    _spoken(draft, "unit", _UNIT, unit_in)
    if known is None and draft.of_clients and not federated(draft.fields):
        noise = draft.noise
        if noise:
            draft.ask("noise_multiplier", f"{noise} may be over the clip of one record of a client")
    _spoken(draft, "adjacency", _ADJACENCY, adjacency_in)
    _sampling(draft)
    _shares(draft)
    # The rounds of a tool that clips clients are the server's, whatever they are called.
    settled = draft.facts.keys() | draft.asked
    if draft.of_clients and "rounds" not in settled:
        draft.take("rounds", *ROUNDS, whole=True)
    draft.claims(EPSILON, DELTA)


def _spoken(draft: Draft, name: str, names: tuple[str, ...], meaning: Callable[[str], Any]) -> None:
    """Take a fact that the file names in words; ask if the words have no single meaning."""
    fields = [one for one in _called(draft.fields, names) if draft.about_the_run(one)]
    found = {meaning(one.value) for one in fields}
    known = draft.facts.get(name)
    if len(found) == 1 and (value := found.pop()) is not None and known in (None, value):
        draft.facts[name] = value
    elif fields and name != "unit":
        draft.ask(name, f"not settled by {', '.join(map(str, fields[:3]))}")


def _called(fields: Fields, names: tuple[str, ...]) -> list[Field]:
    """Return the texts with one of these names, also ``sampling: {type: poisson}``."""
    inside = [
        one
        for one in fields.every
        if one.name in ("type", "name", "method", "kind", "scheme", "strategy")
        and plain_name(one.part) in names
    ]
    return [one for one in [*fields.all(*names), *inside] if isinstance(one.value, str)]


def _sampling(draft: Draft) -> None:
    known, asked = draft.sampling, "sampling" in draft.asked
    names = SAMPLING
    if not draft.of_clients:
        # Clients and the records of a client are drawn in different ways.
        names = tuple(each for each in names if "client" not in each and "cohort" not in each)
    _spoken(draft, "sampling", names, sampling_in)
    flags = {one.flag for one in draft.fields.all("poisson_sampling", "poisson")}
    if flags == {True} and known is None and not asked and not draft.sampling:
        draft.know("sampling", Sampling.POISSON, "poisson sampling is set in the file")


def _shares(draft: Draft) -> None:
    """Take the share or the size of a cohort, or the numbers from which the user can state it."""
    drawn = {"sampling_probability", "cohort", "rounds_per_epoch"}
    if draft.asked & {*drawn, "population"} or draft.sampling is Sampling.EVERYONE:
        return
    if draft.of_clients:
        _take_counts(draft)
    elif federated(draft.fields):
        _of_clients_or_records(draft)
    elif not draft.facts.keys() & drawn:
        _of_records(draft)


def _of_clients_or_records(draft: Draft) -> None:
    """Note the cohort of a federated file whose unit is open, and ask for a rate."""
    if draft.facts.get("unit") is None:
        _suggest(draft, COHORT, POPULATION)
        for one in draft.fields.all(*RATE)[:1]:
            draft.ask("sampling_probability", f"{one}, of clients or of a client's records?")


def _of_records(draft: Draft) -> None:
    """Take the rate of batches, or note the numbers that make one."""
    if draft.sampling is Sampling.SHUFFLED:
        draft.take("rounds_per_epoch", *PER_EPOCH, whole=True)
    if _take_rate(draft, RATE) is None and draft.fields.has("q"):
        noises = {one.parent for one in draft.fields.all(*NOISE, *UNCLEAR)}
        if all(one.parent in noises for one in draft.fields.all("q")):
            _take_rate(draft, ("q",))
    _suggest(draft, BATCH, RECORDS)
    _of_batches(draft)


def _of_batches(draft: Draft) -> None:
    """Take the batch and the number of records, if the file names the sampling that uses them."""
    batch, size = draft.suggested.get("cohort"), draft.suggested.get("population")
    kind = draft.sampling
    if batch is None or size is None or batch > size or "sampling_probability" in draft.facts:
        return
    if kind in (Sampling.FIXED, Sampling.WITH_REPLACEMENT):
        draft.facts |= {"cohort": batch, "population": size}
    elif kind in (Sampling.POISSON, Sampling.SHUFFLED) and size % batch == 0:
        draft.facts |= {"sampling_probability": batch / size, "population": size}
    else:
        return
    draft.inferred.append(f"a batch of {batch} of {size} records")


def _take_counts(draft: Draft) -> None:
    if not draft.facts.keys() & {"cohort", "sampling_probability"}:
        draft.take("cohort", *COHORT, whole=True)
        if "cohort" not in draft.facts:
            # A sample_rate may be that of the batches of a client; a probability is of a unit.
            _take_rate(draft, (*CLIENT_RATE, *(each for each in RATE if "prob" in each)))
    if "population" not in draft.facts:
        draft.take("population", *POPULATION, whole=True)


def _take_rate(draft: Draft, names: tuple[str, ...]) -> float | None:
    """Take a share; a sample rate of sound is none."""
    values = {one.number for one in draft.fields.all(*names) if draft.about_the_run(one)}
    if values and all(value is None or not 0 < value <= 1 for value in values):
        return None
    found: float | None = draft.take("sampling_probability", *names)
    return found


_SIX_UP = Context(prec=6, rounding=ROUND_CEILING)


def _suggest(draft: Draft, cohort: tuple[str, ...], population: tuple[str, ...]) -> None:
    """Note the numbers of the file that belong to the question about the sampling."""
    small, large = draft.fields.number(*cohort), draft.fields.number(*population)
    for name, value in (("cohort", small), ("population", large)):
        if isinstance(value, int) and value >= 1:
            draft.suggested[name] = value
    if small and large and 0 < small <= large:
        # A rate that is rounded down would be too small to be safe.
        draft.suggested["sampling_probability"] = float(
            _SIX_UP.divide(Decimal(small), Decimal(large))
        )
        draft.suggested["rounds_per_epoch"] = math.ceil(large / small)


_NONE = ("", "none", "null", "no", "off")
_INFINITE = ("inf", ".inf", "infinity", "infinite", "+inf", "math.inf", "np.inf", "float('inf')")


def _check_private(draft: Draft, name: str) -> None:
    """Refuse a run without noise: its noise is zero or empty, and no epsilon would need one."""
    every = [one for one in draft.fields.every if draft.about_the_run(one)]
    epsilons = [one for one in every if one.name in EPSILON]
    infinite = next((one for one in epsilons if is_infinite(one.value)), None)
    if infinite is not None and draft.noise:
        draft.ask_claim(f"{infinite} is no claim")
        draft.ask("noise_multiplier", f"{infinite} may turn the noise off")
        draft.lasting.append(f"{infinite} may turn the noise off, whatever is stated")
    elif draft.noise is None and not draft.several.get("noise_multiplier"):
        none = _without_noise(every, infinite)
        if none is not None and all(one.number is None for one in epsilons):
            why = f"{none} states no noise, and no finite epsilon"
            refuse_unauditable(name, draft.tool, f"{why}: the run is not private as recorded")


def _without_noise(every: list[Field], infinite: Field | None) -> Field | None:
    """Return a field that states no noise, unless another one may state some."""
    noises = [one for one in every if one.name in (*NOISE, *UNCLEAR)]
    empty = [one for one in noises if one.value is None or _says_none(one)]
    if len(empty) < len(noises):
        return None
    return infinite or next(iter(empty), None)


def _says_none(one: Field) -> bool:
    return one.name in NOISE and str(one.value).strip().lower() in _NONE


def unclear(fields: Fields) -> list[Field]:
    """Return the fields with a noise that may be a std, a variance, a scale or a multiplier."""
    # A text names a kind of noise, for example gaussian.
    named = fields.all(*UNCLEAR)
    if not named and private(fields) and not fields.has(*NOISE):
        named = [one for one in fields.every if _of_noise(one.words)]
        fields.used |= {one.place: one for one in named}
    return [one for one in named if isinstance(one.value, list) or one.number is not None]


def _of_noise(words: set[str]) -> bool:
    return bool(words & {"noise", "sigma", "std", "stddev", "stdev"}) and not words & _BESIDE


_BESIDE = {"seed", "type", "decay", "schedule", "start", "end", "steps", "rounds", "label", "data"}


def is_infinite(value: Any) -> bool:
    """Return whether a value, or its text, is infinite."""
    if isinstance(value, float):
        return math.isinf(value)
    return isinstance(value, str) and value.strip().lower() in _INFINITE


_STRONG = {"dp", "ldp", "cdp", "dpsgd", "privacy", "opacus", "differential", "differentially"}
_STRONG |= {"dpftrl", "privatize", "privatized", "dpfedavg", "tensorflowprivacy", "fastdp"}
_SAID = {"opacus", "dpsgd", "differential", "differentially", "dp", "ldp", "dpfedavg"}
_GAMES = {"env", "environment", "gamma", "policy", "agent", "replay", "exploration", "episode"}
_GAMES |= {"episodes", "reward", "ddpg", "td3", "dqn", "ppo", "sac", "actor", "critic", "tau"}
_GAMES |= {"depth", "subsample", "huber", "kalman", "kernel", "replay_buffer"}
_GAMES |= {"diffusion", "denoise", "denoising", "augment", "augmentation", "beta", "timesteps"}
CLIPS: tuple[str, ...] = ("max_grad_norm", "clip_norm", "clipping_norm", "l2_norm_clip", "clip")
CLIPS += ("l2_clip", "norm_clip", "dp_clip", "dp_clip_norm", "clip_threshold", "dp_norm_clip")
CLIPS += ("clipping_bound", "clip_bound", "clipping_threshold", "max_per_sample_grad_norm")

KNOWN = {*NOISE, *UNCLEAR, *EPSILON, *DELTA, *ROUNDS, *STEPS, *EPOCHS, *RATE, *PER_EPOCH}
KNOWN |= {*CLIENT_RATE, *COHORT, *POPULATION, *BATCH, *RECORDS, *CLIPS}
"""Names that some reader takes for a fact."""


def private(fields: Fields) -> bool:
    """Return whether a file says that it is about differential privacy.

    Noise is no sign of it: exploration, augmentation and diffusion have one too.
    """
    return fields.has(*NOISE) or _says_so(fields)


def _says_so(fields: Fields) -> bool:
    words = _places(fields)
    if words & _STRONG or _texts(fields) & _SAID:
        return True
    if fields.has(*EPSILON) and _share(fields, DELTA) < 0.1:
        return True
    if not fields.has(*UNCLEAR) or words & _GAMES:
        return False
    if fields.has(*EPSILON):
        # Tables of papers name the rate by its symbol.
        return _share(fields, ("q",)) <= 1
    # An accountant takes a noise, a rate and a number of steps.
    accounted = fields.has(*STEPS) and _share(fields, RATE) <= 1
    return accounted or _share(fields, DELTA) <= 1e-4 or fields.has(*{*CLIPS} - {"max_grad_norm"})


def _share(fields: Fields, names: tuple[str, ...]) -> float:
    """Return the least number above 0 with one of these names, which is not marked as read."""
    numbers = (one.number for one in fields.every if one.name in names)
    return min((number for number in numbers if number and number > 0), default=math.inf)


def other_field(fields: Fields) -> bool:
    """Return whether a file is about something that has another epsilon, delta or noise."""
    return (bool(_places(fields) & _GAMES) and not private(fields)) or generative(fields) != []


def generative(fields: Fields) -> list[Field]:
    """Return the fields of a diffusion model, if no field is about clipping or privacy.

    Such a model adds noise to data. The multiplier has another meaning there.
    """
    if _has_private_clip(fields) or _says_so(fields):
        return []
    told = [(one, plain_name(f"{one.place}.{_text(one)}")) for one in fields.every]
    sure = [one for one, text in told if _DIFFUSION.search(text)]
    perhaps = {word: one for one, text in told for word in _LATENT.findall(text)}
    found = sure or (list(perhaps.values()) if len(perhaps) > 1 else [])
    if not found and bare(fields):
        found = [one for one, text in told if {*text.split("_")} & _GAMES]
    return found


def _has_private_clip(fields: Fields) -> bool:
    """Return whether a file has a clip norm of a private run; others have a max_grad_norm too."""
    clips = {*CLIPS} - {"max_grad_norm"}
    return any(one.name in clips and one.number is not None for one in fields.every)


def bare(fields: Fields) -> bool:
    """Return whether a file has a noise, and no clip, rate, epsilon, delta or word of privacy."""
    others = (one for one in fields.every if "noise" not in one.name)
    words = {word for one in others for word in _words_of(one)}
    known = federated(fields) or _share(fields, RATE) <= 1
    known = known or any(one.name in (*CLIPS, *EPSILON, *DELTA) for one in fields.every)
    return not known and not words & (_STRONG | {"clip", "clipping", "private"})


def trains(fields: Fields) -> bool:
    """Return whether a file has a word of training."""
    return any(_words_of(one) & _TRAINING for one in fields.every)


_TRAINING = {"batch", "epochs", "lr", "learning", "optimizer", "optim", "train", "training"}
_TRAINING |= {"trainer", "sgd", "steps", "iterations", "gradient", "grad", "loss", "dataset"}


def _words_of(one: Field) -> set[str]:
    return {*plain_name(f"{one.place}.{_text(one)}").split("_")}


def _text(one: Field) -> str:
    return one.value[:100] if isinstance(one.value, str) else ""


_DIFFUSION = re.compile(
    "(?:^|_)(?:diffus|ddpm|ddim|denois|timestep|beta_schedule|beta_start|sigma_(?:min|max|data)|s_churn)"
)
_LATENT = re.compile("(?:^|_)(unet|latent|vae|guidance|noise_schedule|sampler)")
"""Beginnings of words for models of data; one of the first, or two of the second."""


def says(fields: Fields, *known: str) -> bool:
    """Return whether a place or a text of the file has one of these words."""
    return bool((_places(fields) | _texts(fields)) & {*known})


def _places(fields: Fields) -> set[str]:
    return {word for one in fields.every for word in plain_name(one.place).split("_")}


def _texts(fields: Fields) -> set[str]:
    return {word for one in fields.every for word in plain_name(_text(one)).split("_")}


def federated(fields: Fields) -> bool:
    """Return whether a file is about clients, so that its noise may be theirs or the server's."""
    machines = fields.has(
        "accelerator", "devices", "gpus", "num_gpus", "machine_rank", "num_machines", "num_nodes"
    )
    for one in fields.every:
        words = one.words - ({"nodes"} if machines else set())
        # Boosting has rounds, and so has an epoch.
        words = words if words.isdisjoint(_OTHER_ROUNDS) else words - {"round", "rounds"}
        if isinstance(one.value, str):
            words |= {*plain_name(one.value[:100]).split("_")} & _ALGORITHMS
        if words & _FEDERATED:
            return True
    return False


_OTHER_ROUNDS = {"decimals", "digits", "epoch", "boost", "boosting", "stopping"}
_ALGORITHMS = {"federated", "fedavg", "fedprox", "fedavgm", "fedsgd", "scaffold", "fedadam"}
_FEDERATED = words_of(
    """
    client clients server fl users silo silos site sites party parties collaborators
    collaborator hospitals aggregator rounds round frac aggregation participants nodes guest
    arbiter
    """
)
_FEDERATED |= {"supernodes", "cohort", *_ALGORITHMS}

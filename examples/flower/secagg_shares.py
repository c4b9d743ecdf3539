"""A client mod that adds a share of integer noise inside Flower's secure aggregation."""

import flwr.compat.common.recorddict_compat as compat
import numpy as np
from flwr.app import Message
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays

import fedprivacy as fp


def shares(mechanism):
    """Return the mod of `mechanism`, a round's `of_round()` with the seed that the server sends."""

    def mod(message, context, call_next):
        reply = call_next(message, context)
        try:
            [update] = parameters_to_ndarrays(
                compat.recorddict_to_fitres(reply.content, False).parameters
            )
            numbers = mechanism.release(update)
        except (fp.ParameterError, ValueError):
            # Who stays silent must not depend on data.
            numbers = mechanism.release(np.zeros(mechanism.dimension))
        sent = ndarrays_to_parameters([numbers - (2**mechanism.bits - 1) / 2])
        # Metrics and numbers of examples travel in the clear.
        result = FitRes(Status(Code.OK, ""), sent, 1, {})
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)

    return mod

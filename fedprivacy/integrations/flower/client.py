"""The client's side: a mod that lets only one clipped vector leave."""

from __future__ import annotations

from logging import ERROR

from flwr.app import Array, ArrayRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

from ...errors import ParameterError, refuse
from .wire import ASKED, CLIP_NORM, FACTOR, MASK, UPDATE, clipped_update


def private_mod(msg: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Let the app train, and send its clipped update instead of its reply.

    It must be the first of a ``ClientApp``'s mods. Metrics, weights and all other records of the
    app's reply stay at the client. So does the text of an error of the app. Each may reveal its
    records. A message without a clip norm, or for anything but training, is refused before the app
    sees it.

    Args:
        msg: from the server.
        context: of this client.
        call_next: the app, or the next mod.

    Returns:
        The update as one vector; or an error that names the broken rule.
    """
    try:
        return _answered(msg, context, call_next)
    except ParameterError as problem:
        code, reason = ErrorCode.MOD_FAILED_PRECONDITION, f"private_mod: {problem}"
    except Exception as problem:
        # Its text may hold private data, so only this client's log gets it.
        log(ERROR, "private_mod: the app failed", exc_info=problem)
        code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        reason = "private_mod: the app failed; see its log"
    return Message(Error(code=code, reason=reason), reply_to=msg)


def _answered(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    kind = message.metadata.message_type
    # "train", or "train.name" for a named function.
    if kind.partition(".")[0] != MessageType.TRAIN:
        way_out = (
            "metrics would leave the client unaccounted; evaluate on the server with public data"
        )
        refuse("message type", kind, "be 'train'", way_out)
    request = message.content.config_records.get(ASKED)
    if request is None:
        rule = "come from fedprivacy's PrivateStrategy, which states a clip norm"
        refuse("message", "without one", rule, "wrap the server's strategy")
    sent = [name for name in message.content.array_records if name != MASK]
    if len(sent) != 1:
        refuse("message's array records", sent, "be one")
    before = {name: array.numpy() for name, array in message.content.array_records[sent[0]].items()}
    masks = message.content.array_records.get(MASK)
    mask = None if masks is None else masks[UPDATE].numpy()
    # The app sees the same message as without this mod.
    for name in {ASKED, MASK} & message.content.keys():
        del message.content[name]
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    records = list(reply.content.array_records.values())
    if len(records) != 1:
        refuse("the app's array records", list(reply.content.array_records), "be one")
    update = clipped_update(
        before,
        {name: array.numpy() for name, array in records[0].items()},
        clip_norm=float(request[CLIP_NORM]),  # type: ignore[arg-type]
        factor=float(request[FACTOR]),  # type: ignore[arg-type]
        mask=mask,
    )
    reply.content = RecordDict({UPDATE: ArrayRecord({UPDATE: Array(update)})})
    return reply

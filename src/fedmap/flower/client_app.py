"""The ClientApp: Flower starts it for each message to a site, with that site's `--node-config`."""

from collections.abc import Callable

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedmap.errors import FedmapError
from fedmap.flower import records
from fedmap.flower.site import Site, private_umask, say
from fedmap.flower.terms import Answer, Hello, Offer, Order

app = ClientApp()


@app.query()
def hello(message: Message, context: Context) -> Message:
    """Who is there?"""

    def work() -> RecordDict:
        asked = records.words(message.content, Hello)
        return records.message(Site(context.node_config).hello(asked))

    return _answered(message, work, _no_offer)


@app.train()
def train(message: Message, context: Context) -> Message:
    """A site's round with its own evaluation, or its final personal model."""
    return _task(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """The global model on the site's test samples."""
    return _task(message, context)


def _task(message: Message, context: Context) -> Message:
    def work() -> RecordDict:
        order = records.words(message.content, Order)
        return Site(context.node_config).answer(order, records.values(message.content))

    return _answered(message, work, lambda reason: records.message(Answer(reason=reason)))


def _no_offer(reason: str) -> RecordDict:
    nothing = Offer(
        site="", classes=(), shape=(), kind="uint8", mean=(), std=(), native=False, reason=reason
    )
    return records.message(nothing)


def _answered(
    message: Message, work: Callable[[], RecordDict], refuse: Callable[[str], RecordDict]
) -> Message:
    """The answer, or a sentence that says why there is none; at the site too."""
    private_umask()
    try:
        content = work()
    except FedmapError as wrong:
        say(str(wrong))
        content = refuse(str(wrong))
    return Message(content, reply_to=message)

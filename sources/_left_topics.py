"""Topics that a query reads no longer, and how it goes on with those that come back.

Their places stay in the offsets of all later epochs, and the query's subscription on them keeps
what comes: so a topic that is named again, or matched again, is continued exactly where the query
stopped, whatever ``startingOffsets`` says. What was deleted meanwhile is a loss, as for any topic.

A topic that was deleted while the query read it is no topic that left: its loss is told once, and
one of its name that is made later is a new topic.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from eos.delta.folder import Folder
from eos.errors import ConfigurationError
from eos.ids import EntryPlace, TopicName
from eos.sources._data_loss import LossGuard
from eos.sources._offsets import Offset
from eos.sources._options import SourceOptions

logger = logging.getLogger(__name__)


def known_places(
    offset: Offset, there: Collection[str], options: SourceOptions, guard: LossGuard
) -> tuple[dict[str, EntryPlace | None], dict[str, EntryPlace | None]]:
    """Where the query stands: in the partitions that it reads (those that were deleted included),
    and in those that it has left.

    Args:
        there: the partitions that are read now.

    Raises:
        DataLost: a topic is left out that nobody has named, unless ``guard`` only warns.
    """
    gone = [name for name in sorted(offset.ends.keys() - set(there)) if not _reads(options, name)]
    _tell(gone, there, options, guard)
    if back := sorted(offset.left.keys() & set(there)):
        logger.info("%s: read again, from where the query stopped.", ", ".join(back))
    known = {**offset.left, **offset.ends}
    left = {name: known[name] for name in {*offset.left, *gone} - set(there)}
    return {name: place for name, place in known.items() if name not in left}, left


def check_named(offset: Offset, options: SourceOptions) -> None:
    """Check that the query's options name all that an epoch reads: a checkpoint alone, which others
    may be able to write, must not say where the query's token goes, and what is read with it.

    Raises:
        ConfigurationError: they do not.
    """
    for name, span in offset.spans.items():
        if not span.is_empty and not _is_named(options, name):
            raise ConfigurationError(
                f"The checkpoint has an epoch with entries of {name!r}, which the query's options "
                "do not name.",
                hint="If it was read before, and that epoch is to be finished: name the topic in "
                "droppedTopics.",
            )
    past, wanted = offset.history, options.history
    if past is None or past.is_empty or (wanted and Folder(wanted).uri == past.table):
        return
    raise ConfigurationError(
        f"The checkpoint has an epoch with files of {past.table!r}, which the query's options do "
        "not name.",
        hint="Give the option history as it was, until all of it is read.",
    )


def _is_named(options: SourceOptions, name: str) -> bool:
    try:
        topic = TopicName.parse(name)
    except ConfigurationError:
        return False
    return options.reads(topic) or options.drops(topic)


def _reads(options: SourceOptions, name: str) -> bool:
    return options.reads(TopicName.parse(name))


def _tell(
    gone: Collection[str], there: Collection[str], options: SourceOptions, guard: LossGuard
) -> None:
    """Say which topics are not read any more; an error of those that nobody has named."""
    dropped = [name for name in gone if options.drops(TopicName.parse(name))]
    if dropped:
        logger.info("%s: not read any more, as droppedTopics says.", ", ".join(dropped))
    # A partition goes by its own name when others of its topic stay.
    stay = {TopicName.parse(name).base for name in there}
    bases = {name: TopicName.parse(name).base for name in gone if name not in dropped}
    names = sorted({name if base in stay else str(base) for name, base in bases.items()})
    if names:
        guard.lost(
            f"The query has read {', '.join(names)}, and its options leave that out now.",
            names[0],
            hint=f"If that is meant: droppedTopics={','.join(names)}. The query's places there are "
            "kept, for the case that they come back. With failOnDataLoss=false it is a warning.",
        )

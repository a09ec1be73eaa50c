"""Topics that a query no longer reads, and may read again later.

Their places stay in the offsets of all later epochs, and the query's subscription keeps their new
messages. A topic that is named or matched again continues exactly where the query stopped, even if
``startingOffsets`` says otherwise. Entries that were deleted meanwhile are a loss, as for any
topic.

A topic that was deleted while the query read it is not one of them: its loss is reported once, and
a later topic of the same name is a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from eos.delta.folder import Folder
from eos.errors import ConfigurationError
from eos.ids import EntryPlace, TopicName
from eos.sources._data_loss import LossGuard
from eos.sources._offsets import Offset
from eos.sources._source_options import SourceOptions

logger = logging.getLogger(__name__)


def known_places(
    offset: Offset, there: Collection[str], options: SourceOptions, guard: LossGuard
) -> tuple[dict[str, EntryPlace | None], dict[str, EntryPlace | None]]:
    """Return up to where the query has read: in the partitions that it reads, including deleted
    ones, and in those that it no longer reads.

    Args:
        there: the partitions that are read now.

    Raises:
        DataLost: a topic is no longer read, and droppedTopics does not name it; unless ``guard``
            only warns.
    """
    gone = [name for name in sorted(offset.ends.keys() - set(there)) if not _reads(options, name)]
    _report(gone, there, options, guard)
    if back := sorted(offset.left.keys() & set(there)):
        logger.info("%s: read again, from where the query stopped.", ", ".join(back))
    known = {**offset.left, **offset.ends}
    left = {name: known[name] for name in {*offset.left, *gone} - set(there)}
    return {name: place for name, place in known.items() if name not in left}, left


def check_named(offset: Offset, options: SourceOptions) -> None:
    """Check that the query's options name all topics and tables of an epoch. A checkpoint may be
    writable by others, so it must not decide where the query's token is sent, and what is read.

    Raises:
        ConfigurationError: the options do not name one of them.
    """
    for name, span in offset.spans.items():
        if not span.is_empty and not _is_named(options, name):
            raise ConfigurationError(
                f"The checkpoint has an epoch with entries of {name!r}, which the query's options "
                "do not name.",
                hint="If the query has read this topic before, name it in droppedTopics to finish "
                "the epoch.",
            )
    past, wanted = offset.history, options.history
    if past is None or past.is_empty or (wanted and Folder(wanted).uri == past.table):
        return
    raise ConfigurationError(
        f"The checkpoint has an epoch with files of {past.table!r}, which the query's options do "
        "not name.",
        hint="Set the option history as before, until all of it is read.",
    )


def _is_named(options: SourceOptions, name: str) -> bool:
    try:
        topic = TopicName.parse(name)
    except ConfigurationError:
        return False
    return options.reads(topic) or options.drops(topic)


def _reads(options: SourceOptions, name: str) -> bool:
    return options.reads(TopicName.parse(name))


def _report(
    gone: Collection[str], there: Collection[str], options: SourceOptions, guard: LossGuard
) -> None:
    """Log topics that are no longer read, and report those that droppedTopics does not name."""
    dropped = [name for name in gone if options.drops(TopicName.parse(name))]
    if dropped:
        logger.info("%s: no longer read, because of droppedTopics.", ", ".join(dropped))
    # A partition is reported by its own name if other partitions of its topic are still read.
    stay = {TopicName.parse(name).base for name in there}
    bases = {name: TopicName.parse(name).base for name in gone if name not in dropped}
    names = sorted({name if base in stay else str(base) for name, base in bases.items()})
    if names:
        guard.report(
            f"The query has read {', '.join(names)}, which its options no longer name.",
            names[0],
            hint=f"If this is intended, set droppedTopics={','.join(names)}. The query keeps its "
            "places there, and continues from them if the topics are read again. With "
            "failOnDataLoss=false this is a warning.",
        )

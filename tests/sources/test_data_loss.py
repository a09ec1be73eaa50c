"""A query ends if entries were deleted before it read them, but not at gaps in ids."""

from __future__ import annotations

import pytest

UNKEPT = {"durableSubscription": False}


def test_entries_that_were_trimmed_before_they_were_read(run, send, trim):
    send(b"0")
    run(**UNKEPT)
    send(b"1")
    trim()
    send(b"2")
    with pytest.raises(Exception, match="no longer exist, and may not have been read"):
        run(**UNKEPT)
    assert run(**UNKEPT, failOnDataLoss=False) == {1: [b"2"]}
    send(b"3")
    assert run(**UNKEPT) == {2: [b"3"]}


def test_an_epoch_that_runs_again_after_its_entries_were_trimmed(run, send, trim):
    send(b"0")
    run(**UNKEPT)
    send(b"1", b"2")
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=1, **UNKEPT)
    trim()
    send(b"3")
    with pytest.raises(Exception, match="were deleted before or while they were read"):
        run(**UNKEPT)
    assert run(**UNKEPT, failOnDataLoss=False) == {1: [], 2: [b"3"]}


def test_a_first_epoch_that_runs_again_after_its_entries_were_trimmed(run, send, trim):
    send(b"0")
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0, **UNKEPT)
    trim()
    send(b"1")
    with pytest.raises(Exception, match="were deleted before or while they were read"):
        run(**UNKEPT)


def test_a_subscription_keeps_unread_entries(run, send, trim):
    send(b"0", b"1", b"2")
    run()
    run()  # the subscription moves after the first epoch
    for _ in range(2):  # nothing new: read entries may be deleted, which is no loss
        trim()
    send(b"3")
    trim()
    send(b"4")
    assert run() == {1: [b"3", b"4"]}


@pytest.mark.parametrize("count", [1, 6], ids=["shorter", "longer"])
def test_a_recreated_topic_is_a_loss(run, send, topic_admin, count):
    send(*(b"%d" % n for n in range(3)))
    run()
    topic_admin("DELETE", "?force=true")
    with pytest.raises(Exception, match="TopicNotFound"):
        run()
    send(*(b"new %d" % n for n in range(count)))
    with pytest.raises(Exception, match=r"no longer exist|recreated"):
        run()
    assert run(failOnDataLoss=False) == {1: [b"new %d" % n for n in range(count)]}
    send(b"more")
    assert run() == {2: [b"more"]}


@pytest.mark.parametrize("split", [False, True])
def test_a_topic_that_was_deleted_before_its_planned_epoch_ran(
    run, send, name, topic_admin, pulsar_standalone, split
):
    more = {"topic": None, "topicsPattern": f"{name}-.*"}
    if split:
        more |= {"adminUrl": pulsar_standalone.admin_url, "minPartitions": 4}
    for topic in ("a", "b"):
        send(b"0", b"1", topic=f"{name}-{topic}")
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0, **more)
    topic_admin("DELETE", "?force=true", topic=f"{name}-a")
    with pytest.raises(Exception, match=r"was deleted before .* failOnDataLoss=false"):
        run(**more)
    send(b"2", topic=f"{name}-b")
    assert run(**more, failOnDataLoss=False) == {0: [b"0", b"1"], 1: [b"2"]}


def test_a_checkpoint_beyond_the_topics_end_is_a_loss(run, send, name, tmp_path, topic_admin):
    """As on another cluster, whose ledgers have lower numbers."""
    (sent,) = send(b"0")
    run(fail_in=None)
    (offset,) = [
        path for path in (tmp_path / "checkpoint" / "offsets").iterdir() if path.name == "0"
    ]
    offset.write_text(offset.read_text().replace(f'"to": "{sent.ledger}:1"', '"to": "999999:17"'))
    (offset.parent / ".0.crc").unlink()
    with pytest.raises(Exception, match="ends before 999999:17"):
        run()
    assert run(failOnDataLoss=False) == {1: [b"0"]}

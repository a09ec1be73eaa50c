"""Gives tests a real broker: ask for the fixture ``pulsar_standalone``.

pytest loads this module in every run where the project is installed, so it imports nothing
before the fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from eos.standalone._broker import PulsarStandalone


@pytest.fixture(scope="session")
def pulsar_standalone() -> Iterator[PulsarStandalone]:
    """A started broker with transactions, one for the whole test session.

    ``pulsar_standalone.service_url`` and ``.admin_url`` say where it is. Tests share it: use
    topic names of your own, and don't kill it unless you ``restart()`` it.
    """
    from eos.standalone._broker import PulsarStandalone

    with PulsarStandalone() as broker:
        yield broker

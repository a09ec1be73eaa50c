"""A topic, a commit log and drivers without Spark."""

from tests.recovery.conftest import dies_behind, recovery  # noqa: F401 - fixtures
from tests.support.drivers import make_driver, topic  # noqa: F401 - fixtures

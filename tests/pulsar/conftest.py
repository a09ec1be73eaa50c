"""A topic, a commit log and drivers without Spark."""

from tests.support.drivers import make_driver, topic  # noqa: F401 - fixtures

"""The S3 server of the commit log's tests, for tables."""

from __future__ import annotations

from tests.commit_log.test_s3 import bucket, server, where

__all__ = ["bucket", "server", "where"]

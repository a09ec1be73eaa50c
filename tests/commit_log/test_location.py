"""Locations of a log: an absolute path, or a URL that Delta opens; nothing is guessed."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from eos.commit_log import CommitLog, list_sinks, probe_storage
from eos.commit_log.location import Location
from eos.errors import ConfigurationError
from tests.protocol.epochs import claim


@pytest.mark.parametrize(
    ("root", "hint"),
    [
        ("eos-log", "Write the absolute path: {cwd}/eos-log"),
        (Path("eos-log/x"), "Write the absolute path: {cwd}/eos-log/x"),
        ("./eos-log", "Write the absolute path: {cwd}/eos-log"),
        ("../eos-log", "Write the absolute path: {parent}/eos-log"),
        ("~nobody-of-that-name/log", "Write the absolute path"),
        ("dbfs:/eos-log", "Write /dbfs/eos-log"),
        ("dbfs:///eos-log", "Write /dbfs/eos-log"),
        ("DBFS:/eos-log", "Write /dbfs/eos-log"),
        ("file:/data/eos", "Write /data/eos"),
        ("file://host/data/eos", "Write file:///data/eos"),
        ("FILE:///data/eos", "Write file:///data/eos"),
        ("S3://bucket/eos", "Write s3://bucket/eos"),
        (Path("s3://bucket/eos"), "Write s3://bucket/eos, as text"),
        ("s3:///eos", "Name the bucket"),
        ("ftp://host/eos", "Known schemes: s3, s3a, gs"),
        ("memory://eos", "Known schemes:"),
        ("http://host/eos", "Known schemes:"),
        ("", "name a folder or a URL"),
        ("/data/\0/eos", "the path contains '\\x00'"),
        ("/data/a\nb/eos", "the path contains '\\n'"),
        ("/data/a%20b", "the path contains '%20'"),
        ("file:///data/a%2520b", "the path contains '%20'"),
        ("/data/a\\b", "Use another name"),
        ("/data/[x]/eos", "the path contains '['"),
        ("/data/" + "x" * 256, "At most 255 bytes"),
        ("/data/" + "ü" * 128, "At most 255 bytes"),
        ("/data" + "/x" * 1900, "3800 in all"),
    ],
)
def test_a_relative_path_or_unknown_url_is_refused_with_a_hint(root, hint, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for use in (
        lambda: CommitLog.open(root, "orders"),
        lambda: CommitLog.open_read_only(root, "orders"),
        lambda: list_sinks(root),
        lambda: probe_storage(root),
    ):
        with pytest.raises(ConfigurationError) as caught:
            use()
        assert hint.format(cwd=folder, parent=tmp_path) in str(caught.value)
    assert os.listdir(tmp_path) == ["here"]
    assert os.listdir(folder) == []


@pytest.mark.parametrize("root", ["~/eos", Path("~/eos")])
def test_a_tilde_means_the_home_folder(root, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    CommitLog.open(root, "orders").append(claim())
    assert list_sinks(tmp_path / "eos") == ["orders"]


@pytest.mark.parametrize(
    "url",
    [
        *(f"{s}://bucket/eos" for s in ("s3", "s3a", "gs", "gcs", "az", "azure", "adl")),
        "abfs://container@account.dfs.core.windows.net/eos",
        "abfss://container@account.dfs.core.windows.net/eos",
        "hdfs://namenode:8020/eos",
    ],
)
def test_urls_that_delta_opens_are_kept_unchanged(url):
    assert Location(f"{url}/", "orders").uri == f"{url}/orders"
    assert Location(url).folder is None


def test_an_error_of_several_lines_keeps_the_systems_reason_and_no_secret():
    text = (
        "Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m Unable to copy s3cret data to file\n"
        "   \x1b[31m↳\x1b[0m No space left on device (os error 28)\n"
    )
    location = Location("s3://bucket/log", storage_options={"secret": "s3cret"})
    says = "Generic LocalFileSystem error: No space left on device (os error 28)"
    assert location.clean(OSError(text)) == says
    assert location.clean(OSError("one s3cret line")) == "one *** line"


@pytest.mark.parametrize("url", ["file:///data/my%20eos", "file://localhost/data/my%20eos"])
def test_a_file_url_is_the_path_that_it_names(url):
    assert Location(url, "orders").folder == Path("/data/my eos/orders")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
@pytest.mark.parametrize("which", ["", "orders"], ids=["root", "sink"])
def test_a_world_writable_folder_is_warned_of_with_the_command(root, log, caplog, mode, which):
    folder = root / which
    folder.chmod(mode)
    with caplog.at_level(logging.WARNING, "eos"):
        CommitLog.open(root, "orders")
    (record,) = caplog.records
    assert f"chmod o-w '{folder}'" in record.getMessage()


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o775])
def test_a_folder_of_its_owner_or_group_causes_no_warning(root, log, caplog, mode):
    root.chmod(mode)
    with caplog.at_level(logging.WARNING, "eos"):
        CommitLog.open(root, "orders")
    assert caplog.records == []

"""Releases of PySpark: those that are supported, and the way out of one that is not."""

from __future__ import annotations

import sys
import warnings

import pyspark
import pytest

from eos.errors import ConfigurationError
from eos.sinks import _release
from eos.sinks._release import check_release


@pytest.mark.parametrize("version", ["2.4.8", "3.4.4"])
def test_an_older_release_is_refused_with_what_to_install(version):
    with pytest.raises(ConfigurationError, match=version) as refused:
        check_release(version)
    assert "3.5 or newer" in refused.value.hint


@pytest.mark.parametrize("version", ["3.5.0", "4.0.5", "4.3.1.dev0", pyspark.__version__])
def test_a_tested_release_is_accepted_in_silence(monkeypatch, version):
    monkeypatch.setattr(_release, "find_spec", lambda module: module)  # Python 3.12: distutils
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_release(version)


@pytest.mark.parametrize("python", [(3, 11), (3, 12)])
def test_a_module_that_python_no_longer_has_is_asked_for(monkeypatch, python):
    """PySpark 3.5 on Python 3.12 converts types by distutils, which setuptools brings."""
    monkeypatch.setattr(sys, "version_info", python)
    monkeypatch.setattr(_release, "find_spec", lambda module: None)
    check_release("4.0.0")
    if python < (3, 12):
        check_release("3.5.9")
        return
    with pytest.raises(ConfigurationError, match="needs setuptools"):
        check_release("3.5.9")


@pytest.mark.parametrize("version", ["4.4.0", "5.0.0.dev1"])
def test_a_newer_release_is_accepted_with_a_warning(version):
    with pytest.warns(UserWarning, match=version):
        check_release(version)

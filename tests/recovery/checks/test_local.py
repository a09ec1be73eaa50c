"""Properties files, compared with Java's own parser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from eos.recovery.checks.local import parse_properties

JAVA = """
import java.io.*; import java.nio.charset.StandardCharsets; import java.util.*;
public class Read { public static void main(String[] args) throws Exception {
  StringBuilder out = new StringBuilder();
  for (String name : args) {
    Properties p = new Properties();
    try (Reader r = new InputStreamReader(new FileInputStream(name), StandardCharsets.UTF_8)) {
      p.load(r);
      for (String k : new TreeSet<>(p.stringPropertyNames()))
        out.append(hex(k)).append("=").append(hex(p.getProperty(k))).append(" ");
    } catch (IllegalArgumentException e) { out.append("refused"); }
    out.append("\\n");
  }
  System.out.print(out);
}
static String hex(String s) { StringBuilder b = new StringBuilder("x");
  for (char c : s.toCharArray()) b.append(String.format("%04x", (int) c)); return b.toString(); } }
"""
TEXTS = [
    "a b", "a=b", "a:b", "a\tb", "a = b", "a\f:\tb", "a  b c ", "a==b", "a = = b", " a", "a", "=b",
    ":b", "", "#a b", "  ! a b", "a b\n#c\nd", "a\\ b c", "a\\=b=c", "a\\:b:c",
    "a\\\\ b", "a \\t\\n\\q",
    "a \\u0041\\u00e9", "a \\u00", "a \\", "a b\\\n  c", "a b\\\\\n  c", "a b\\\r\n\t c\\\n#d",
    "a\\\n\n b",
    "a b\ra c", "a\r\nb c", "a 你好", "a b\\\n\\\nc", "a\\\n=b", "\\#a b", "a #b", "a\x0bb c",
]  # fmt: skip


def test_properties_are_parsed_like_java(tmp_path: Path):
    java = shutil.which("java")
    if java is None:
        pytest.skip("no Java here")
    (tmp_path / "Read.java").write_text(JAVA)
    files = []
    for number, text in enumerate(TEXTS):
        files.append(str(tmp_path / f"{number}.properties"))
        Path(files[-1]).write_bytes(text.encode())
    said = subprocess.run(
        [java, str(tmp_path / "Read.java"), *files],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.splitlines()
    ours = [shown(text) for text in TEXTS]
    differ = [
        (json.dumps(text), mine, javas)
        for text, mine, javas in zip(TEXTS, ours, said, strict=True)
        if mine != javas.strip()
    ]
    assert differ == []


def shown(text: str) -> str:
    """The output of ``Read`` for a text."""
    try:
        found = parse_properties(text)
    except ValueError:
        return "refused"
    return " ".join(f"{in_hex(name)}={in_hex(found[name])}" for name in sorted(found))


def in_hex(text: str) -> str:
    return "x" + "".join(f"{ord(letter):04x}" for letter in text)

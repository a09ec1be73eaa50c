"""A plain consumer reads the topic of the first page."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "quickstart.md"


def test_a_plain_consumer_decodes_what_the_quick_start_wrote(
    spark, pulsar_standalone, tmp_path, capsys, name
):
    from eos import PulsarSink

    mark = "test_first_steps.py runs this block -->\n```python\n"
    (block,) = re.findall(f"{re.escape(mark)}(.*?)```", PAGE.read_text(), re.DOTALL)
    sink = PulsarSink(
        sink_id=name,
        service_url=pulsar_standalone.service_url,
        topic=f"persistent://public/default/{name}",
        commit_log=str(tmp_path / "log"),
        create_topics=True,
        schema="avro",
    )
    ticks = "TIMESTAMP'2026-11-19 12:00:00' AS timestamp", "id AS value", "STRING(id) AS __key"
    sink.write(spark.range(3).selectExpr(*ticks), epoch="a")
    sink.close()
    for here, there in (
        ("http://localhost:8080", pulsar_standalone.admin_url),
        ("pulsar://localhost:6650", pulsar_standalone.service_url),
        ("default/ticks", f"default/{name}"),
    ):
        assert here in block
        block = block.replace(here, there)
    exec(compile(block, "quickstart.md", "exec"), {})
    shown = capsys.readouterr().out
    assert re.search(r"'value': [012]\b", shown), shown
    assert "datetime.datetime(2026, 11, 19, 12, 0" in shown

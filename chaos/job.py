"""The ``Job`` that a workload gets in the driver's process, which is restarted after each death.

A workload is a function of a Spark session and a ``Job`` that starts one streaming query and
returns it::

    def orders(spark, job):
        sink = PulsarSink(sink_id=job.sink_id, service_url=job.service_url, topic=job.topic,
                          commit_log=job.commit_log)
        return (job.input(spark).writeStream.foreachBatch(sink)
                .option("checkpointLocation", job.checkpoint).start())
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from eos.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Workload = Callable[[SparkSession, "Job"], StreamingQuery]

QueryShape = Literal[
    "stream", "scattered", "stateful", "grouped", "windowed", "joined", "notebook", "counted"
]
SLOT = "slot"
KEY_NAME = "chaos"
DATABASE_TABLE = "records"
ICEBERG_TABLE = "chaos.records"
READS_TOPIC = "chaos: from-topic:"
READS_HISTORY = "chaos: from-history:"
INPUT_SUBSCRIPTION = "chaos-input"
INPUT_SCHEMA = "value string, key string, slot int"
# What ``eos.chaos._keyed_counter`` prints in each transaction, and its exit codes: another process
# owns its state, or an error of the broker or the network.
BEGUN = "begun"
COMMITTED = "committed"
FENCED = 3
BROKE_OFF = 4
NO_KEY = "no key"


@dataclass(frozen=True)
class Job:
    """A run of a workload, for its driver.

    Attributes:
        workload: ``module:function``.
        service_url: the broker, through the fault proxy.
        admin_url: its admin API, without the proxy; "" if the sink may not use it.
        topic: where the records must arrive.
        sink_id, commit_log: for a sink of eos.
        checkpoint: of the query; the same after a restart.
        input_dir: the harness writes the inputs to this folder, a file each.
        input_topic: the harness writes the inputs to this topic instead; "" for none.
        scratch_dir: for temporary files of this driver.
        tasks: number of Spark tasks that write an epoch.
        on_new_cluster: the operator's choice if a driver finds another cluster.
        rows: maximum number of records in an input.
        tiered: the folder of offloaded ledgers of ``input_topic``; "" for none.
        history: a table with the first inputs of ``input_topic``; "" for none.
        spark_conf: more Spark settings.
        shape, table, database, iceberg, whole_rows, by_format, user_code: only for the harness's
            own workload: the query shape, the table of another output or "", the conninfo of a
            database or "", the folder of an Iceberg catalog or "", whether to write whole rows
            (``eos.chaos._records``), whether to write by ``format("pulsar")``, and the variants of
            user code (``eos.chaos._user_code``).
        keys: the folder of the keys with which the sink encrypts, or "".
    """

    workload: str
    service_url: str
    admin_url: str
    topic: str
    sink_id: str
    commit_log: str
    checkpoint: str
    input_dir: str
    scratch_dir: str
    tasks: int = 2
    on_new_cluster: Literal["refuse", "continue"] = "refuse"
    shape: QueryShape = "stream"
    table: str = ""
    database: str = ""
    iceberg: str = ""
    whole_rows: bool = False
    by_format: bool = False
    keys: str = ""
    input_topic: str = ""
    history: str = ""
    tiered: str = ""
    rows: int = 0
    user_code: tuple[str, ...] = ()
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def input(self, spark: SparkSession, subscription: str = INPUT_SUBSCRIPTION) -> DataFrame:
        """The records as a stream of ``value`` and ``key``, one input for each micro-batch.

        ``value`` must arrive unchanged, alone or inside other text, and ``key`` as the message's
        key, in any partition. The records of a key are in one task, in order. A query that reads
        them twice needs a second ``subscription``.
        """
        if self.input_topic:
            return self._from_topic(spark, subscription).repartition(self.tasks, SLOT).drop(SLOT)
        files = spark.readStream.schema(INPUT_SCHEMA).option("maxFilesPerTrigger", 1)
        # A shuffle, like most jobs have, so that stages can run again.
        return files.parquet(self.input_dir).repartition(self.tasks, SLOT).drop(SLOT)

    def _from_topic(self, spark: SparkSession, subscription: str) -> DataFrame:
        print(f"{READS_TOPIC} {self.input_topic}", flush=True)
        begins: dict[str, str] = {"startingOffsets": "earliest"}
        if self.history:
            print(f"{READS_HISTORY} {self.history}", flush=True)
            begins = {"history": self.history}
            if self.admin_url:  # so that the table is read in more than one epoch
                begins |= {"maxRowsPerTrigger": str(self.rows), "adminUrl": self.admin_url}
        if self.tiered:
            begins |= {"tieredStorage": self.tiered, "adminUrl": self.admin_url}
        messages = spark.readStream.format("pulsar").options(
            serviceUrl=self.service_url,
            topic=self.input_topic,
            subscription=subscription,
            requestTimeoutS=20,
            **begins,
        )
        wanted = "value binary, __key binary, __messageProperties map<string,string>"
        return (
            messages.schema(wanted)
            .load()
            .selectExpr(
                "CAST(value AS STRING) AS value",
                "CAST(__key AS STRING) AS key",
                f"CAST(__messageProperties['{SLOT}'] AS INT) AS {SLOT}",
            )
        )

    @property
    def iceberg_catalog(self) -> dict[str, str]:
        """The properties of the Iceberg catalog, as for ``pyiceberg``."""
        folder = Path(self.iceberg)
        folder.mkdir(exist_ok=True)
        uri = f"sqlite:///{folder}/catalog.db"
        return {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))


def load(workload: str) -> Any:
    """Import the function named ``module:function``.

    Raises:
        ConfigurationError: it does not exist.
    """
    module, _, name = workload.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"--workload {workload!r}: {error}.",
            hint="Name a function as MODULE:FUNCTION, importable from here, such as "
            "eos.chaos.workloads:stream.",
        ) from error


def prepare(job: Job) -> None:
    """Create the folders that the driver needs."""
    for folder in (job.input_dir, job.scratch_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
    if job.keys and not Path(job.keys).exists():  # each driver calls this
        _make_keys(Path(job.keys))


def _make_keys(folder: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public, private = key_files(folder)
    folder.mkdir(parents=True, exist_ok=True)
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def key_files(folder: Path) -> tuple[Path, Path]:
    """Return the files of the public and of the private key ``KEY_NAME`` in ``folder``."""
    return folder / f"{KEY_NAME}.public.pem", folder / f"{KEY_NAME}.private.pem"

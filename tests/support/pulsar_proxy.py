"""Pulsar's own proxy in a process of its own, in front of a cluster."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eos.testing import PulsarCluster, jvm, maven
from eos.testing import _settings as settings

# Maven Central has the proxy of few versions, and only some of its libraries: the others are those
# of a broker of the version before.
_PROXY: Final = "4.0.8"
_LIBRARIES: Final = "4.0.7"
_OWN: Final = ("pulsar-proxy", "pulsar-common", "pulsar-broker-common", "pulsar-client-original")
# Those that a broker does not have.
_OTHERS: Final = (
    "org.eclipse.jetty:jetty-proxy:9.4.57.v20241219",
    "com.github.seancfoley:ipaddress:5.5.0",
)
_COPY_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_READY_S: Final = 60.0


@dataclass(frozen=True)
class PulsarProxy:
    """The addresses of the running proxy."""

    service_url: str
    admin_url: str


@contextmanager
def pulsar_proxy(cluster: PulsarCluster, folder: Path) -> Iterator[PulsarProxy]:
    """A running proxy that finds the brokers of ``cluster`` in its metadata store."""
    taken: set[int] = set()
    port, web_port = settings.free_port(taken), settings.free_port(taken)
    conf = (cluster.brokers[0].data_dir / "broker.conf").read_text()
    store = re.search(r"^metadataStoreUrl=(.*)$", conf, re.MULTILINE)
    assert store is not None
    own_conf, output = folder / "proxy.conf", folder / "proxy.out"
    own_conf.write_text(
        settings.properties(
            {
                "clusterName": settings.CLUSTER,
                "bindAddress": settings.HOST,
                "advertisedAddress": settings.HOST,
                "servicePort": str(port),
                "webServicePort": str(web_port),
                "metadataStoreUrl": store[1],
                "configurationMetadataStoreUrl": store[1],
                "brokerProxyAllowedTargetPorts": "*",
                "numIOThreads": "2",
            }
        )
    )
    java = jvm.need_java()
    program = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [java, *jvm.OPTIONS, "-Xmx256m", "-cp", _class_path(), program, "-c", str(own_conf)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _await(process, (port, web_port), output)
        yield PulsarProxy(f"pulsar://{settings.HOST}:{port}", f"http://{settings.HOST}:{web_port}")
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], ports: tuple[int, ...], output: Path) -> None:
    deadline = time.monotonic() + _READY_S
    for port in ports:
        while True:
            try:
                socket.create_connection((settings.HOST, port), 1.0).close()
                break
            except OSError:
                is_over = process.poll() is not None or time.monotonic() > deadline
                assert not is_over, output.read_text()[-2000:]
                time.sleep(0.1)


def _class_path() -> str:
    others = maven.resolve(_OTHERS, f"pulsar-proxy-{_PROXY}-libraries")
    folders = (_own_jars(), others[0].parent, maven.pulsar_jars(_LIBRARIES)[0].parent)
    # Of two classes with the same name Java uses the first one.
    return ":".join(f"{folder}/*" for folder in folders)


def _own_jars() -> Path:
    folder = maven.cache_dir() / f"pulsar-proxy-{_PROXY}"
    with maven.locked(folder.with_name(f"{folder.name}.lock")):
        for name in _OWN:
            if not (folder / f"{name}-{_PROXY}.jar").exists():
                command = ["mvn", "-B", "-q", "--strict-checksums", _COPY_GOAL]
                command += [f"-Dartifact=org.apache.pulsar:{name}:{_PROXY}", "-Dtransitive=false"]
                command += [f"-DoutputDirectory={folder}"]
                subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return folder

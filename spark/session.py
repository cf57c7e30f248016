"""Spark session: on the user's cluster, or in one process of this machine.

under spark-submit      the session that is there, unchanged
remote="sc://host"      Spark Connect; needs no Java here
master="spark://host"   that cluster, with its own settings
none of these           local: loopback only, UTC, no web interface, few shuffle partitions
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tarry.spark.bundle import bundle
from tarry.spark.errors import JavaMissing, PackageMissing

JAVA_MAJOR_MIN: Final = 17
LOG: Final = Path(__file__).with_name("log4j2.properties")

SMALL: Final = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG.as_uri()} -XX:+UseSerialGC "
    "-Xms512m -XX:MetaspaceSize=256m -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings of a local session for less than a million rows: compiling, or planning each stage by what the
stage before it returned, would cost more than it saves; heap, classes and code have room from the start."""


def java_major() -> int:
    """Return the major version of the Java that Spark would start. Raises JavaMissing."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin/java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        raise JavaMissing(f"none (JAVA_HOME is {home})" if home else "none on PATH and no JAVA_HOME")
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_MAJOR_MIN:
        raise JavaMissing(f"{version[0] if version else 'no version'} in {program}")
    return int(version[1])


def session(
    name: str = "tarry",
    *,
    master: str | None = None,
    remote: str | None = None,
    memory_mib: int = 3_072,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session.

    Args:
        memory_mib: of a local session only; a cluster has its own.
        settings: more of Spark's, or others than these, of a local session.

    Raises:
        JavaMissing: and neither `remote` nor spark-submit has brought one.
        PackageMissing: `remote` needs one that pyspark does not bring.
    """
    builder = SparkSession.builder.appName(name)
    if remote:
        return _remote(builder, remote)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit, which has read the user's settings
        return builder.getOrCreate()
    java_major()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master and not master.startswith("local"):
        return builder.master(master).getOrCreate()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    own = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{memory_mib}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG.as_uri()} -XX:+UseParallelGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    for key, value in {**own, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.master(master or "local[*]").getOrCreate()


def _remote(builder: Any, remote: str) -> SparkSession:
    """Return a session of a Spark Connect server, which is given this program's code for its workers."""
    try:
        spark: SparkSession = builder.remote(remote).getOrCreate()
    except ImportError as error:
        raise PackageMissing("pyspark[connect]", f"Spark Connect ({error})") from error
    with tempfile.TemporaryDirectory(prefix="tarry-spark-") as folder:
        spark.addArtifacts(str(bundle(Path(folder, "tarry.zip"))), pyfile=True)
    return spark

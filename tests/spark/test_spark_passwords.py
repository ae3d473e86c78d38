"""Spark at a server with users: a password, an nkey, a token and an API key each open the door."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nkeys as signing
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millstream.client import connect
from support.jwt_makers import Holder
from support.peers import free_port, running, scratch_directory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RECORDS = 12


def fill(url: str) -> None:
    with connect(url) as client:
        client.request("$JS.API.STREAM.CREATE.ORDERS", b'{"name":"ORDERS","subjects":["orders.>"]}')
        for at in range(RECORDS):
            assert "seq" in json.loads(client.request("orders.x", b'{"n":%d}' % at).payload)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """Options for each way in, by its name."""
    keyed = Holder(signing.PREFIX_BYTE_USER)
    seed = tmp_path_factory.mktemp("nkey") / "user.nk"
    seed.write_text(keyed.seed.decode())
    with scratch_directory("millstream") as directory:
        port, http_port, data = free_port(), free_port(), directory / "data"
        made = subprocess.run(
            [sys.executable, "-m", "millstream", "key", "add", "--data-dir", str(data)],
            capture_output=True,
            text=True,
            check=True,
        )
        secret = made.stdout.split()[-1]
        path = directory / "server.conf"
        path.write_text(
            f"""
            listen: 127.0.0.1:{port}
            jetstream {{ store_dir: "{data}" }}
            authorization {{ users: [
              {{ user: ann, password: "s3cret" }}, {{ nkey: {keyed.public} }} ] }}
            """
        )
        command = [sys.executable, "-m", "millstream", "serve", "-c", str(path)]
        command += ["--http-port", str(http_port), "--data-dir", str(data)]
        with running("millstream", command, port, directory):
            url = f"nats://127.0.0.1:{port}"
            fill(url.replace("nats://", "nats://ann:s3cret@"))
            yield {
                "password": {"url": url, "user": "ann", "password": "s3cret"},
                "nkey": {"url": url, "nkeyFile": str(seed)},
                "key": {"url": f"http://127.0.0.1:{http_port}", "apiKey": secret},
                "token": {"url": f"http://127.0.0.1:{http_port}", "token": secret},
            }


@pytest.mark.parametrize("door", ["password", "nkey", "key", "token"])
def test_each_credential_reads_in_workers_too(
    spark: SparkSession, doors: dict[str, dict[str, str]], door: str
) -> None:
    given = {**doors[door], "access": "broker", "payloadJson": "true", "timeout": "30"}
    frame = spark.read.format("millstream").options(**given).load("ORDERS")
    rows = frame.selectExpr("seq", "payload_json:n::int n").collect()
    assert sorted((row.seq, row.n) for row in rows) == [(n + 1, n) for n in range(RECORDS)]


def test_a_wrong_password_and_a_server_that_is_not_there_are_told(
    spark: SparkSession, doors: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    reader = spark.read.format("millstream").option("patience", "0")
    wrong = reader.options(**{**doors["password"], "password": "guess"}).load("ORDERS")
    with pytest.raises(PySparkException, match=r"[Aa]uth|password"):
        wrong.count()
    away = reader.options(url="nats://127.0.0.1:1", timeout="1").load("ORDERS")
    with pytest.raises(PySparkException, match="cannot reach"):
        away.count()

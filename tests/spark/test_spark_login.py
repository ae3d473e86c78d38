"""Spark at a server with TLS and JWTs: everybody reads and writes what their credentials say."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream.client import connect
from millstream.client.errors import PermissionDenied
from millstream.client.login import login_of
from millstream.spark.options import parse
from millstream.spark.reading.stream_source import StreamingReader
from millstream.spark.source import BatchReader
from support.certificates import Authority
from support.jwt_makers import Operator
from support.peers import free_port, running, scratch_directory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_UNBOUNDED = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
_STORES = ("mem_storage", "disk_storage", "streams", "consumer")
UNLIMITED = {"wildcards": True} | dict.fromkeys((*_UNBOUNDED, *_STORES), -1)
CLERK = {"sub": {"allow": ["_INBOX.>", "orders.eu"]}}
DEAF = {"sub": {"deny": ["orders.secret"]}}
STRANGER = {"sub": {"allow": ["_INBOX.>", "bills.>"]}}


@dataclass(frozen=True)
class Guarded:
    """A server that wants a client certificate and a user's credentials."""

    url: str
    options: dict[str, str]
    creds: dict[str, str]

    def as_user(self, name: str, **more: str) -> dict[str, str]:
        return {"url": self.url, "stream": "ORDERS", **self.options, **more} | {
            "credsFile": self.creds[name]
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    home = tmp_path_factory.mktemp("guarded")
    authority = Authority(home)
    shown, mine = authority.server(), authority.client()
    operator = Operator()
    account = operator.account("orders", limits=UNLIMITED)
    users = {"all": {}, "clerk": CLERK, "deaf": DEAF, "stranger": STRANGER}
    creds = {name: str(home / f"{name}.creds") for name in users}
    for name, rights in users.items():
        Path(creds[name]).write_text(account.user(name, **rights).creds_file())
    tls = {"tlsCa": authority.ca_file, "tlsCert": mine.cert_file, "tlsKey": mine.key_file}
    with scratch_directory("millstream") as directory:
        port = free_port()
        path = directory / "server.conf"
        path.write_text(
            f"""
            listen: 127.0.0.1:{port}
            jetstream {{ store_dir: "{directory / "data"}" }}
            tls {{ cert_file: "{shown.cert_file}", key_file: "{shown.key_file}",
                   ca_file: "{authority.ca_file}", verify: true }}
            operator: {operator.token}
            resolver: MEMORY
            resolver_preload {{ {account.public}: {account.token} }}
            """
        )
        command = [sys.executable, "-m", "millstream", "serve", "-c", str(path)]
        command += ["--http-port", str(free_port())]
        with running("millstream", command, port, directory):
            server = Guarded(f"tls://localhost:{port}", tls, creds)
            login = login_of(
                creds_file=creds["all"],
                ca_file=tls["tlsCa"],
                cert_file=tls["tlsCert"],
                key_file=tls["tlsKey"],
            )
            with connect(server.url, login=login) as client:
                config = b'{"name":"ORDERS","subjects":["orders.*"]}'
                client.request("$JS.API.STREAM.CREATE.ORDERS", config)
                hidden = b'{"name":"HIDDEN","subjects":["hidden"]}'
                client.request("$JS.API.STREAM.CREATE.HIDDEN", hidden)
                for at in range(30):
                    subject = ("orders.eu", "orders.us", "orders.secret")[at % 3]
                    client.request(subject, b"%d" % at)
            yield server


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("millstream").options(**options).load()


def by_subject(frame: DataFrame) -> dict[str, int]:
    return {row.subject: row["count"] for row in frame.groupBy("subject").count().collect()}


def test_credentials_and_certificates_reach_driver_and_workers(
    spark: SparkSession, guarded: Guarded
) -> None:
    whole = {"orders.eu": 10, "orders.us": 10, "orders.secret": 10}
    assert by_subject(read(spark, guarded.as_user("all", endSeq="30"))) == whole
    rows = spark.range(4).selectExpr("'orders.new' subject", "cast(id as string) payload")
    written = rows.write.format("millstream").mode("append")
    written.options(**guarded.as_user("all")).save()
    frame = read(spark, guarded.as_user("all", subject="orders.new"))
    assert sorted(row.payload.encode() for row in frame.collect()) == [b"0", b"1", b"2", b"3"]


def test_a_subject_that_the_user_may_not_read_yields_nothing(
    spark: SparkSession, guarded: Guarded
) -> None:
    clerk = guarded.as_user("clerk", endSeq="30")
    assert by_subject(read(spark, clerk)) == {"orders.eu": 10}
    assert read(spark, clerk | {"subject": "orders.secret"}).count() == 0
    deaf = guarded.as_user("deaf", endSeq="30")
    assert by_subject(read(spark, deaf)) == {"orders.eu": 10, "orders.us": 10}


def test_a_query_of_such_a_user_goes_on_past_what_it_may_not_read(
    spark: SparkSession, guarded: Guarded, tmp_path: Path
) -> None:
    source = spark.readStream.format("millstream")
    options = guarded.as_user("clerk", maxRecordsPerTrigger="7", columns="seq,subject")
    query = (
        source.options(**options)
        .load()
        .writeStream.format("memory")
        .queryName("clerk")
        .option("checkpointLocation", str(tmp_path / "clerk"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.table("clerk").where("seq <= 30").collect()
    assert sorted(row.seq for row in found) == list(range(1, 31, 3))


def test_a_pattern_stands_for_the_streams_that_the_user_may_read(guarded: Guarded) -> None:
    def reader(user: str, streams: str = "*") -> StreamingReader:
        options = guarded.as_user(user, stream=streams)
        return StreamingReader(parse(options), ("seq",))

    clerk = reader("clerk")
    begun = clerk.initialOffset()
    assert list(begun) == ["v", "ORDERS"]
    clerk.prepareForTriggerAvailableNow()
    for _ in range(2):  # asked, and remembered
        assert list(clerk.latestOffset(begun, ReadAllAvailable())) == ["v", "ORDERS"]
    batch = BatchReader(parse(guarded.as_user("clerk", stream="*")), ("seq",))
    assert {task.stream for part in batch.partitions() for _, task in part.value} == {"ORDERS"}
    # Who names it, or may read none, is told.
    for asked in (reader("clerk", "HIDDEN,ORD*"), reader("stranger")):
        with pytest.raises(PermissionDenied):
            asked.initialOffset()


def test_files_are_not_for_who_may_read_only_a_part(spark: SparkSession, guarded: Guarded) -> None:
    with pytest.raises(PySparkException, match="may read only some subjects of stream 'ORDERS'"):
        read(spark, guarded.as_user("clerk", access="files")).count()


def test_who_may_read_nothing_or_is_not_known_is_refused(
    spark: SparkSession, guarded: Guarded
) -> None:
    with pytest.raises(PySparkException, match=r"[Pp]ermission|may not|refused"):
        read(spark, guarded.as_user("stranger")).count()
    unknown = {"url": guarded.url, "stream": "ORDERS", "patience": "0"}
    with pytest.raises(PySparkException, match="certificate"):
        read(spark, unknown).count()
    nobody = {**unknown, **guarded.options}
    with pytest.raises(PySparkException, match=r"[Aa]uthori[sz]|login|credentials"):
        read(spark, nobody).count()

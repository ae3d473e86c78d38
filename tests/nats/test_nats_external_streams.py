"""Mirrors and sources of other accounts, along the imports that are in force."""

from pathlib import Path
from typing import Any

import pytest

import nats
from millstream.accounts.account import Account, Export, Import
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.accounts.external_streams import ExternalStreams
from support.jetstream_api import api, info_at
from support.server_process import started

API = "$JS.API.CONSUMER.>"
ORIGIN = Account(
    "RI",
    exports=(
        Export(API, service=True, accounts=("JS", "VIA")),
        Export("RI.DELIVER.>", accounts=("JS", "VIA", "THIRD")),
    ),
)
TAKEN = (
    Import("RI", API, service=True, to="RI.JS.API.CONSUMER.>"),
    Import("RI", "RI.DELIVER.>"),
)


def reach(importer: Account, *others: Account, domain: str = "") -> Any:
    accounts = Accounts([ORIGIN, importer, *others])
    return ExternalStreams(accounts, domain).reach(
        importer.name, "RI.JS.API", "RI.DELIVER.SYNC", "O"
    )


def test_a_stream_is_reached_through_the_imports_of_its_api_and_its_deliveries():
    assert reach(Account("JS", imports=TAKEN)) == ("RI", "O")


@pytest.mark.parametrize("taken", [(), TAKEN[:1], TAKEN[1:]])
def test_a_stream_is_out_of_reach_while_an_import_is_missing(taken):
    assert reach(Account("JS", imports=taken)) is None


def test_a_stream_is_out_of_reach_where_it_is_not_exported_to():
    assert reach(Account("NO", imports=TAKEN)) is None


def test_an_import_of_an_import_leads_to_the_same_stream():
    via = Account(
        "VIA",
        imports=(TAKEN[0],),
        exports=(Export("RI.JS.API.CONSUMER.>", service=True),),
    )
    third = Account(
        "THIRD",
        imports=(Import("VIA", "RI.JS.API.CONSUMER.>", service=True), TAKEN[1]),
    )
    assert reach(third, via) == ("RI", "O")


def test_our_own_domain_is_ourselves():
    accounts = Accounts([Account("A")])
    found = ExternalStreams(accounts, "hub").reach("A", "$JS.hub.API", "", "O")
    assert found == ("A", "O")


CONFIG = """
jetstream { store_dir: "%s" }
accounts {
  RI {
    jetstream: enabled
    users: [{user: ri, password: p}]
    exports: [
      {service: "$JS.API.CONSUMER.>"}
      {service: "$JS.FC.>"}
      {stream: "RI.DELIVER.SYNC.>", accounts: [JS]}
    ]
  }
  JS {
    jetstream: enabled
    users: [{user: js, password: p}]
    imports: [
      {service: {account: RI, subject: "$JS.API.CONSUMER.>"}, to: "RI.JS.API.CONSUMER.>"}
      {service: {account: RI, subject: "$JS.FC.>"}}
      {stream: {account: RI, subject: "RI.DELIVER.SYNC.>"}}
    ]
  }
  OTHER {
    jetstream: enabled
    users: [{user: other, password: p}]
  }
}
"""


async def test_records_of_another_account_are_mirrored_and_sourced_where_it_lets_us(tmp_path: Path):
    external = {"api": "RI.JS.API", "deliver": "RI.DELIVER.SYNC.X"}
    config = tmp_path / "server.conf"
    config.write_text(CONFIG % (tmp_path / "data"))
    with started("-c", str(config)) as server:
        url = server.ready()
        origin, importer, other = [
            await nats.connect(url, user=user, password="p") for user in ("ri", "js", "other")
        ]
        await api(origin, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        for at in range(4):
            await origin.request(f"o.{at % 2}", b"m%d" % at, timeout=5)
        mirror = {"name": "M", "mirror": {"name": "O", "external": external}}
        source = {"name": "O", "external": external, "filter_subject": "o.1"}
        for client in (importer, other):
            await api(client, "STREAM.CREATE.M", mirror)
        await api(importer, "STREAM.CREATE.S", {"name": "S", "sources": [source]})
        info = await info_at(importer, "M", 4)
        assert (info["state"]["messages"], info["mirror"]["external"]) == (4, external)
        assert (await info_at(importer, "S", 2))["state"]["messages"] == 2
        await origin.request("o.1", b"later", timeout=5)
        assert (await info_at(importer, "M", 5))["state"]["last_seq"] == 5
        apart = await api(other, "STREAM.INFO.M", {})
        assert (apart["state"]["messages"], apart["mirror"]["active"]) == (0, -1)
        for client in (origin, importer, other):
            await client.close()
        server.finish()

import pytest

from millstream.client.address import Address, parse_url, parse_urls
from millstream.client.errors import InvalidUrl


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("nats://example.org", Address("example.org", 4222)),
        ("example.org:1", Address("example.org", 1)),
        ("tls://[::1]:2", Address("::1", 2, tls=True)),
        ("nats://secret@h", Address("h", token="secret")),
        ("nats://u:p%40ss@h:3", Address("h", 3, user="u", password="p@ss")),
    ],
)
def test_url_says_where_and_who(url: str, address: Address) -> None:
    assert parse_url(url) == address


def test_several_urls_are_separated_by_commas() -> None:
    assert [a.port for a in parse_urls("h:1, nats://h:2,")] == [1, 2]


@pytest.mark.parametrize("url", ["", " , ", "ws://h", "nats://h:99999", "nats://h:x"])
def test_a_url_that_cannot_be_used_is_named(url: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_urls(url)


def test_address_never_shows_the_secret() -> None:
    address = parse_url("nats://u:hidden@h:3")
    assert "hidden" not in f"{address} {address!r}"

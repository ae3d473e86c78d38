"""The table of pages and actions: what a person does there, and what another client then sees."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dashboard_site import Sight, Site


@dataclass(frozen=True)
class Action:
    """One thing to do on one page; ``effect`` asks another client, and is polled until true."""

    page: str
    name: str
    do: Callable[[Sight], None]
    effect: Callable[[Site], bool]


def _button(sight: Sight, name: str, within: str = "body") -> Any:
    return sight.page.locator(within).get_by_role("button", name=name, exact=True)


def _row(sight: Sight, text: str) -> Any:
    return sight.page.locator("tr", has_text=text).first


def _fill(sight: Sight, label: str, value: str, within: str = "dialog") -> None:
    sight.page.locator(within).get_by_label(label).first.fill(value)


def _confirm(sight: Sight, name: str, label: str) -> None:
    """Type a name as asked; until it is whole, nothing can be done."""
    go = sight.page.locator("dialog").get_by_role("button", name=label, exact=True)
    assert go.is_disabled()
    field = sight.page.locator("dialog input")
    field.fill(name[:-1])
    assert go.is_disabled()
    field.fill(name)
    go.click()


def _topic(site: Site, name: str) -> Any:
    return site.call("GET", f"/v0/topics/{name}?touch=false")


def _last(site: Site, name: str, **wish: Any) -> Any:
    found = site.call("POST", f"/v0/topics/{name}/browse", {"limit": 1, **wish})["records"]
    return found[0] if found else {}


def _create_stream(sight: Sight) -> None:
    _button(sight, "New stream").click()
    _fill(sight, "Name", "made-here")
    _fill(sight, "Subjects", "made.>")
    _button(sight, "Create", "dialog").click()
    sight.toast("Created made-here")


def _edit_config(sight: Sight) -> None:
    _fill(sight, "Most messages", "1234", "form")
    _button(sight, "Save").click()
    sight.toast("Saved")


def _purge(sight: Sight) -> None:
    _button(sight, "Purge").click()
    _confirm(sight, "to-purge", "Purge")
    sight.toast("Purged 1 messages")


def _delete_stream(sight: Sight) -> None:
    _button(sight, "Delete").click()
    _confirm(sight, "to-delete", "Delete")
    sight.toast("Deleted to-delete")


def _search(sight: Sight) -> None:
    _fill(sight, "JSON path", "$.total = 70", "form")
    _button(sight, "Search").click()
    sight.page.locator(".messages li").nth(1).wait_for(state="detached")
    sight.page.locator('.messages li[data-seq="8"] button.line').click()
    sight.sees("ann@example.org")


def _search_everything(sight: Sight) -> None:
    """By subject, header, text and sequence; each leaves one."""
    for label, value, seq in (
        ("Subject", "orders.packed", "43"),
        ("Header", "Nats-Msg-Id: 17", "18"),
        ("Text", "onerror=document", "41"),
        ("From sequence", "1", "1"),
    ):
        _button(sight, "Clear").click()
        sight.page.locator(".messages li").nth(30).wait_for()
        _fill(sight, label, value, "form")
        _button(sight, "Search").click()
        sight.page.locator(".messages li").nth(1).wait_for(state="detached")
        assert sight.page.locator(".messages li").first.get_attribute("data-seq") == seq
    _button(sight, "Clear").click()


def _unpack(sight: Sight) -> None:
    sight.page.locator('.messages li[data-seq="43"] button.line').click()
    _button(sight, "MessagePack").click()
    sight.page.locator(".tree .key", has_text="packed").wait_for()
    _button(sight, "Hex").click()
    sight.sees("00000000  82 a6 70 61 63 6b 65 64")


def _publish(sight: Sight) -> None:
    _fill(sight, "Subject", "orders.typed", "form")
    _fill(sight, "Payload", '{"typed": true}', "form")
    _fill(sight, "Headers", "X-Typed: yes", "form")
    _button(sight, "Publish").click()
    sight.sees("Stored in")


def _request(sight: Sight) -> None:
    _fill(sight, "Subject", "$JS.API.STREAM.CREATE.asked", "form")
    _fill(sight, "Payload", '{"name": "asked", "subjects": ["asked"]}', "form")
    _button(sight, "Send as request").click()
    sight.page.locator(".tree .key", has_text="config").first.wait_for()


def _pause(sight: Sight) -> None:
    _row(sight, "billing").get_by_role("button", name="Pause").click()
    _fill(sight, "Minutes", "5")
    _button(sight, "Pause", "dialog").click()
    sight.toast("billing is paused")


def _resume(sight: Sight) -> None:
    _row(sight, "billing").get_by_role("button", name="Resume").click()
    sight.toast("billing goes on")


def _reset(sight: Sight) -> None:
    _row(sight, "billing").get_by_role("button", name="Reset").click()
    _fill(sight, "Sequence", "7")
    _button(sight, "Reset", "dialog").click()
    sight.toast("billing begins at 7")


def _delete_consumer(sight: Sight) -> None:
    _row(sight, "shipping").get_by_role("button", name="Delete").click()
    _confirm(sight, "shipping", "Delete")
    sight.toast("Deleted shipping")


def _create_consumer(sight: Sight) -> None:
    _button(sight, "New consumer").click()
    _fill(sight, "Name", "made-here")
    _button(sight, "Create", "dialog").click()
    sight.toast("Created made-here")


def _replay(sight: Sight) -> None:
    row = _row(sight, "jobs")
    row.get_by_role("button", name="Dead letters").click()
    sight.sees("Dead letters in jobs-dead")
    row.get_by_role("button", name="Replay").click()
    sight.toast("dead letters back to jobs")


def _put_key(sight: Sight) -> None:
    _button(sight, "Put a key").click()
    _fill(sight, "Key", "colour")
    _fill(sight, "Value", "teal")
    _button(sight, "Save", "dialog").click()
    sight.toast("Saved colour")


def _edit_key(sight: Sight) -> None:
    sight.page.locator("td", has_text="dark").wait_for()  # what it was before
    _button(sight, "Edit").click()
    _fill(sight, "Value", "dim")
    _button(sight, "Save", "dialog").click()
    sight.toast("Saved theme")


def _delete_key(sight: Sight) -> None:
    _row(sight, "limit").get_by_role("button", name="Delete").click()
    _confirm(sight, "limit", "Delete")
    sight.toast("Deleted limit")


def _download(sight: Sight) -> None:
    with sight.page.expect_download() as got:
        _row(sight, "report.csv").get_by_role("button", name="Download").click()
    with open(got.value.path(), "rb") as file:
        assert file.read() == b"a,b\n1,2\n" * 100


def _close_connection(sight: Sight) -> None:
    _fill(sight, "Filter connections", "to-be-closed", "main")
    _row(sight, "to-be-closed").get_by_role("button", name="Close").click()
    _button(sight, "Close it", "dialog").click()
    sight.toast("Closed")


def _try_operation(sight: Sight) -> None:
    _fill(sight, "topic", "tried", "form")
    _fill(sight, "Body", '{"subjects": ["tried.>"]}', "form")
    _button(sight, "Send").click()
    sight.sees("201 Created")


def _key_of(site: Site, name: str) -> Any:
    return _last(site, "KV_settings", subject=f"$KV.settings.{name}")


def _consumer(site: Site, name: str) -> Any:
    return site.call("GET", f"/v0/topics/ORDERS/consumers/{name}")


def _closed(site: Site) -> bool:
    found = site.call("GET", "/connz?state=closed")["connections"]
    return any(each.get("name") == "to-be-closed" and each["reason"] == "Kicked" for each in found)


def _is_empty(site: Site) -> bool:
    return bool(_topic(site, "to-purge")["count"] == 0)


def _is_gone(site: Site, name: str) -> bool:
    return "error" in _topic(site, name)


def _untouched(site: Site) -> bool:
    """Nothing was taken: billing still has all of it before it, and every record is there."""
    return bool(_topic(site, "ORDERS")["count"] >= 44 and _consumer(site, "billing")["num_pending"])


ORDERS = "stream/ORDERS"
ACTIONS = [
    Action("streams", "create", _create_stream, lambda s: _topic(s, "made-here")["count"] == 0),
    Action(
        "stream/to-edit/settings",
        "edit the configuration",
        _edit_config,
        lambda s: _topic(s, "to-edit")["config"]["cap_records"] == 1234,
    ),
    Action("stream/to-purge", "purge", _purge, _is_empty),
    Action(
        "stream/to-delete", "delete", _delete_stream, lambda s: "error" in _topic(s, "to-delete")
    ),
    Action(ORDERS, "search by JSON path", _search, _untouched),
    Action(ORDERS, "search by all else", _search_everything, _untouched),
    Action(ORDERS, "unpack MessagePack and show bytes", _unpack, _untouched),
    Action(
        "publish",
        "publish",
        _publish,
        lambda s: _last(s, "ORDERS", subject="orders.typed").get("headers") == [["X-Typed", "yes"]],
    ),
    Action("publish", "request", _request, lambda s: _topic(s, "asked")["type"] == "log"),
    Action("consumers", "pause", _pause, lambda s: _consumer(s, "billing").get("paused") is True),
    Action("consumers", "resume", _resume, lambda s: "paused" not in _consumer(s, "billing")),
    Action(
        "consumers",
        "reset",
        _reset,
        lambda s: _consumer(s, "billing")["ack_floor"]["stream_seq"] == 6,
    ),
    Action(
        f"{ORDERS}/consumers",
        "create",
        _create_consumer,
        lambda s: "why" in _consumer(s, "made-here"),
    ),
    Action("consumers", "delete", _delete_consumer, lambda s: "error" in _consumer(s, "shipping")),
    Action(
        "queues", "replay dead letters", _replay, lambda s: _topic(s, "jobs-dead")["count"] == 0
    ),
    Action("kv/settings", "put", _put_key, lambda s: _key_of(s, "colour")["text"] == "teal"),
    Action("kv/settings/theme", "edit", _edit_key, lambda s: _key_of(s, "theme")["text"] == "dim"),
    Action(
        "kv/settings",
        "delete",
        _delete_key,
        lambda s: _key_of(s, "limit")["headers"] == [["KV-Operation", "DEL"]],
    ),
    Action("objects/files", "download", _download, lambda s: _topic(s, "OBJ_files")["count"] == 2),
    Action("connections", "close", _close_connection, _closed),
    Action(
        "api/put_v0_topics_topic",
        "try an operation",
        _try_operation,
        lambda s: _topic(s, "tried")["config"]["subjects"] == ["tried.>"],
    ),
]

# Every page, as a person can reach it; screenshots and the accessibility check go through these.
PAGES = [
    *(
        "overview",
        "streams",
        ORDERS,
        f"{ORDERS}/consumers",
        f"{ORDERS}/settings",
        f"{ORDERS}/state",
    ),
    *("publish", "consumers", "queues", "kv", "kv/settings", "kv/settings/theme", "objects"),
    *("objects/files", "objects/files/report.csv", "flow", "connections", "pipelines", "access"),
    *("audit", "api/post_v0_publish"),
]

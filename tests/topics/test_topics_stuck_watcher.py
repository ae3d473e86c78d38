"""A watcher that does not read holds nobody up, and loses nothing silently."""

import asyncio

from topics_api import Api, Events


async def test_a_stuck_watcher_changes_nothing_for_the_others(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 5})
    stuck = Events(await api.send("GET", "/v0/topics/t/tail?from_seq=0"))
    quick = Events(await api.send("GET", "/v0/topics/t/tail?from_seq=0"))
    for events in (stuck, quick):
        assert (await events.named())[0] == "caught-up"
    for n in range(20):
        await api.write("t", n)  # is acknowledged although nobody takes the first one's events
        name, shown = await quick.named()
        assert (name, [record["data"] for record in shown["records"]]) == ("record", [n])
        assert (await quick.named())[0] == "caught-up"
    name, lost = await stuck.named()
    assert (name, lost["gap_from"], lost["gap_to"]) == ("tombstone", 1, 15)
    name, shown = await stuck.named()
    assert [record["data"] for record in shown["records"]] == [15, 16, 17, 18, 19]
    for events in (stuck, quick):
        await events.close()


async def test_nothing_is_kept_for_a_stuck_watcher(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t")
    stuck = Events(await api.send("GET", "/v0/topics/t/tail?from_seq=0"))
    assert (await stuck.named())[0] == "caught-up"
    for n in range(200):
        await api.write("t", n)
    await asyncio.sleep(0)
    assert api.topics.scheduler.depth <= 1  # one topic, however often it grew
    name, shown = await stuck.named()
    assert (name, len(shown["records"])) == ("record", 200)
    await stuck.close()

"""Nothing in the source starts a thread, a task or a repeated call that could end unseen."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "millstream"

STARTS = {
    *("Thread", "Timer", "start_new_thread", "ThreadPoolExecutor", "ProcessPoolExecutor"),
    *("create_task", "ensure_future", "TaskGroup", "run_in_executor", "to_thread"),
    *("call_later", "call_at", "add_reader", "add_writer"),
}
OWN = {"Timer"}  # classes of ours by a name that the standard library has too

REQUEST = "a task of one request: whoever asked awaits it, or it answers for itself"
CONNECTION = "one connection's own; one that fails is closed"
WAITER = "wakes one waiter once"
AGAIN = "sets its next time behind a call that the supervisor guards"

ALLOWED = {
    "supervisor.py:Supervisor.thread": "the one place that makes threads",
    "client/async_worker.py:AsyncWorker.run": "the group ends with whatever a task of it raises",
    "client/async_worker.py:AsyncWorker._take": "in that group",
    "client/async_worker.py:AsyncWorker._wait": WAITER,
    "client/worker.py:Worker.run": "the pool's futures are looked at, one by one",
    "delivery/scheduler.py:Scheduler._turn_later": "a turn guards each work that it does",
    "delivery/pressure_watch.py:PressureWatch._look_later": AGAIN,
    "delivery/timers.py:Timers._set_alarm": "the queue guards each callback that it runs",
    "http/compression.py:compressed.answer": REQUEST,
    "http/connection.py:HttpConnection._begin": REQUEST,
    "http/door.py:HttpDoor._accepted": "looked at when it is done",
    "http/door.py:HttpDoor._tick": AGAIN,
    "http/http2/connection.py:Http2Connection._run": REQUEST,
    "links/arrivals.py:Arrivals.accepted": CONNECTION,
    "links/dialing.py:_readable": WAITER,
    "links/leafs.py:Leafs._keep": "supervised",
    "links/route_callers.py:RouteCallers.keep": "supervised",
    "listener.py:Listener._failed": "the loop goes on accepting, whatever one client raises",
    "listener.py:Listener._resume": "the loop goes on accepting, whatever one client raises",
    "nats/door.py:NatsDoor.serve": "the kernel's poll raises nothing; the tick is guarded",
    "nats/door.py:NatsDoor._turn": AGAIN,
    "nats/jetstream/serving/request_tasks.py:RequestTasks.start": "supervised",
    "nats/jetstream/serving/request_tasks.py:RequestTasks._run": "in the supervised task",
    "nats/jetstream/serving/request_tasks.py:RequestTasks.spawn": REQUEST,
    "nats/jetstream/serving/request_tasks.py:RequestTasks.begin": REQUEST,
    "nats/jetstream/snapshots.py": REQUEST,
    "nats/resolvers/url_source.py:UrlSource.fetch": REQUEST,
    "nats/transport/link.py:Link": CONNECTION,
    "nats/millstream_api/sink_endpoint.py:SinkEndpoint.deliver": REQUEST,
    "nats/transport/tls_transport.py:TlsClient": CONNECTION,
    "queues/queue_work.py:QueueWork.start": REQUEST,
    "server/process/loop_guard.py:GuardedLoop": "the loop itself, which measures its calls",
    "server/server.py:follow": "whatever an order raises stops the server",
    "server/embedded.py:EmbeddedServer._start": "awaited at the end, with what it raised",
    "server/process/loop_guard.py": "measures what the loop runs; each call is somebody else's",
    "store/object_log/probe.py:probe": "each result is asked for before it returns",
    "streams/reading/cold_reads.py:look_again": WAITER,
    "streams/deposits/deposits.py:Deposits.commit": REQUEST,
    "topics/audience/wakeup.py:Wakeup": WAITER,
    "topics/stop_signal.py:StopSignal.wait_for": WAITER,
    "topics/unbroken.py:UnbrokenWork.run": REQUEST,
    "topics/limits/idempotency.py:Idempotency.once": REQUEST,
    "topics/watch/socket.py:Socket._read_on": "one that fails closes the socket",
}


def starts(tree: ast.AST, place: str) -> Iterator[str]:
    """Yield the function around each call that starts something."""
    for node in parts_of(tree):
        inner = place
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{place}.{node.name}".removeprefix(".")
        if isinstance(node, ast.expr) and named(node) in STARTS:  # called, or handed on
            yield place
        yield from starts(node, inner)


def parts_of(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node consists of, without annotations: those start nothing."""
    for name, value in ast.iter_fields(tree):
        if name not in ("annotation", "returns"):
            yield from (
                each
                for each in (value if isinstance(value, list) else [value])
                if isinstance(each, ast.AST)
            )


def named(expression: ast.expr) -> str:
    if isinstance(expression, ast.Attribute):
        return expression.attr
    if not isinstance(expression, ast.Name) or expression.id in OWN:
        return ""
    return expression.id


def all_starts() -> set[str]:
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.split("/")[0] in {"spark", "pipelines", "cli"}:  # no server; they end with an error
            continue
        found |= {f"{name}:{place}" for place in starts(ast.parse(path.read_text()), "")}
    return found


def is_allowed(start: str) -> bool:
    return any(start == known or start.startswith((f"{known}.", f"{known}:")) for known in ALLOWED)


def test_every_thread_task_and_repeated_call_is_supervised_or_says_why_not() -> None:
    assert [start for start in sorted(all_starts()) if not is_allowed(start)] == []


def test_no_reason_is_left_for_what_is_gone() -> None:
    found = all_starts()
    used = {
        known
        for known in ALLOWED
        if any(each == known or each.startswith((f"{known}.", f"{known}:")) for each in found)
    }
    assert set(ALLOWED) - used == set()


def test_the_scan_sees_a_bare_thread() -> None:
    bare = (
        "import threading\nclass A:\n    def run(self):\n        threading.Thread(target=print)\n"
    )
    assert list(starts(ast.parse(bare), "")) == ["A.run"]

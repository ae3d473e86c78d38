"""What operators type: commands of natscli in the order in which they build on each other.

``DIR`` stands for a directory of the run's own. Commands of ``SYSTEM`` go to the system account.
"""


def _lines(text: str) -> list[str]:
    """Return one command for each line; a backslash joins a line with the next."""
    return [line.strip() for line in text.replace(" \\\n", " ").splitlines() if line.strip()]


STREAM_OPTIONS = _lines("""
--retention limits
--retention work
--retention interest
--storage memory
--max-msgs 10
--max-bytes 1MB
--max-age 1h
--max-msg-size 1KB
--discard new
--max-msgs-per-subject 3
--dupe-window 30s
--max-consumers 5
--deny-delete
--deny-purge
--allow-rollup
--allow-direct
--no-allow-direct
--compression s2
--description words
--metadata a:b
--first-sequence 100
--allow-msg-ttl
--subject-del-markers-ttl 1h --allow-msg-ttl --allow-rollup
--allow-counter
--allow-batch
--allow-schedules
--persist-mode async
--discard-per-subject --discard new --max-msgs-per-subject 1
--limit-consumer-max-pending 10
--limit-consumer-inactive 1m
--transform-source O.* --transform-destination T.{{wildcard(1)}}
--republish-source O.> --republish-destination R.>
--republish-source O.> --republish-destination R.> --republish-headers
""")
CONSUMER_OPTIONS = _lines("""
--pull
--pull --ack none
--pull --ack all
--pull --deliver new
--pull --deliver last
--pull --deliver subject
--pull --deliver 2
--pull --deliver 1h
--pull --filter ORDERS.a
--pull --filter ORDERS.a --filter ORDERS.b
--pull --max-deliver 3
--pull --max-pending 7
--pull --max-waiting 9
--pull --wait 10s
--pull --sample 50
--pull --headers-only
--pull --inactive-threshold 1h
--pull --max-pull-batch 5
--pull --max-pull-bytes 4096
--pull --max-pull-expire 10s
--pull --memory
--pull --replay original
--pull --description words
--pull --metadata a:b
--pull --backoff linear --backoff-steps 2 --backoff-min 1m --backoff-max 2m --max-deliver 4
--pull --pinned-groups g --pinned-ttl 1m
--pull --overflow-groups g
--target d.one
--target d.two --deliver-group q
--target d.three --flow-control --heartbeat 5s
--target d.four --bps 1000000
--target d.five --ack none
""")


def _streams() -> list[str]:
    made = []
    for at, options in enumerate(STREAM_OPTIONS):
        own = options.replace("O.", f"O{at}.")
        made.append(f"stream add O{at} --subjects O{at}.> --defaults {own} --json")
        made.append(f"stream info O{at} --json")
    return made


def _consumers() -> list[str]:
    made = []
    for at, options in enumerate(CONSUMER_OPTIONS):
        made.append(f"consumer add ORDERS c{at} --defaults {options}")
        made.append(f"consumer info ORDERS c{at} --json")
    return made


BASICS = _lines("""
account info
rtt --json
pub plain hello
pub plain hello -H A:b
stream add ORDERS --subjects ORDERS.> --defaults --json
pub ORDERS.a body-0 --jetstream
pub ORDERS.b body-1 --jetstream
pub ORDERS.c body-2 --jetstream
pub ORDERS.a body-3 --jetstream
pub ORDERS.b body-4 --jetstream
pub ORDERS.h body -H A:b -H A:c --jetstream
pub ORDERS.n {{Count}} --count 5 --jetstream
req --replies 1 --timeout 1s ORDERS.r body
req nobody body --timeout 1s
stream ls --json
stream ls --names
stream ls --all --json
stream ls --subject ORDERS.x --json
stream info ORDERS --json
stream info ORDERS --state --json
stream state ORDERS --json
stream subjects ORDERS --json
stream subjects ORDERS ORDERS.a --json
stream find
stream find --empty --names
stream find --subject ORDERS.x --names
stream find --idle 1h --names
stream find --consumers 1 --names
stream find --invert --names --empty
stream report
stream info NONE --json
stream state NONE
stream get ORDERS 1 --json
stream get ORDERS 3 --json
stream get ORDERS 6 --json
stream get ORDERS 99 --json
stream get ORDERS --last-for ORDERS.a --json
stream get ORDERS --last-for ORDERS.none --json
stream rmm ORDERS 2 --force
stream rmm ORDERS 2 --force
stream get ORDERS 2 --json
stream gaps ORDERS --force --json
stream edit ORDERS --description new --force --json
stream edit ORDERS --max-msgs 1000 --force --json
stream edit ORDERS --subjects ORDERS.> --subjects EXTRA --force --json
stream edit ORDERS --max-age 2h --force --json
stream edit ORDERS --dry-run --max-msgs 5
stream edit NONE --max-msgs 5 --force
stream copy ORDERS COPY --subjects COPY.> --json
stream add ORDERS --subjects X --defaults --json
stream add CLASH --subjects ORDERS.a --defaults --json
stream add BAD.NAME --subjects y --defaults
""")
FEEDS = _lines("""
stream add MIRROR --mirror ORDERS --defaults --json
stream info MIRROR --json
stream add SOURCED --source ORDERS --defaults --json
stream info SOURCED --json
stream add WORK --subjects W.> --retention work --defaults --json
stream add DRAIN --source WORK --defaults --json
stream info WORK --json
stream rm DRAIN --force
stream info WORK --json
consumer ls WORK --json
stream seal COPY --force
stream info COPY --json
pub COPY.x y --jetstream
""")
CONSUMERS = _lines("""
consumer ls ORDERS --json
consumer ls ORDERS --names
consumer ls NONE --json
consumer find ORDERS
consumer find ORDERS --pull
consumer find ORDERS --push
consumer find ORDERS --ack-pending 0
consumer report ORDERS
consumer info ORDERS NONE --json
consumer state ORDERS c0 --json
consumer next ORDERS c0 --raw
consumer next ORDERS c0 --count 2 --raw
consumer next ORDERS c0 --no-ack --raw
consumer next ORDERS c8 --raw --ack
consumer next ORDERS c0 --term --raw
consumer next ORDERS c1 --raw
consumer next ORDERS NONE --raw
consumer info ORDERS c0 --json
consumer edit ORDERS c0 --description new --force
consumer edit ORDERS c0 --max-pending 50 --force
consumer edit ORDERS c0 --wait 20s --force
consumer edit ORDERS c0 --filter ORDERS.a --force
consumer edit ORDERS NONE --description x --force
consumer copy ORDERS c0 c0copy
consumer info ORDERS c0copy --json
consumer pause ORDERS c0 1h --force
consumer info ORDERS c0 --json
consumer resume ORDERS c0 --force
consumer resume ORDERS c0 --force
consumer reset ORDERS c0 --force
consumer reset ORDERS c0 --sequence 3 --force
consumer unpin ORDERS c25 g --force
stream cluster step-down ORDERS
consumer rm ORDERS c0copy --force
consumer rm ORDERS c0copy --force
""")
KEYS = _lines("""
kv add KV --history 5 --ttl 1h
kv add KV2 --storage memory --max-value-size 10 --description words
kv add KV3 --compress --marker-ttl 1m
kv info KV
kv ls --names
kv ls
kv put KV a one
kv put KV a two
kv put KV b one
kv put KV b two
kv put KV c one
kv put KV c two
kv get KV a
kv get KV a --raw
kv get KV a --revision 1 --raw
kv get KV none --raw
kv create KV d new
kv create KV d again
kv create KV3 t gone --ttl 1m
kv update KV a three 2
kv update KV a four 1
kv history KV a
kv history KV none
kv del KV b --force
kv get KV b --raw
kv history KV b
kv purge KV c --force
kv history KV c
kv ls KV
kv ls KV --verbose
kv revert KV a 1 --force
kv get KV a --raw
kv compact KV --force
kv edit KV --history 10
kv info KV
kv put KV2 k 12345678901
kv put KV bad..key x
kv info NONE
kv put NONE k v
kv del KV2 --force
kv info KV2
stream info KV_KV --json
stream subjects KV_KV --json
""")
OBJECTS = _lines("""
object add OBJ
object add OBJ2 --ttl 1h --max-bucket-size 1MB --description words --storage memory
object put OBJ DIR/file --name file --no-progress
object put OBJ DIR/large --name large --no-progress --force
object put OBJ DIR/file --name described --description words --no-progress
object ls
object ls --names
object ls OBJ
object info OBJ
object info OBJ file
object info OBJ none
object get OBJ file --output DIR/out --no-progress --force
object get OBJ large --output DIR/out2 --no-progress --force
object get OBJ none --output DIR/out3 --no-progress --force
object del OBJ file --force
object get OBJ file --output DIR/out --no-progress --force
object edit OBJ --description changed
object seal OBJ --force
object info OBJ
object put OBJ DIR/file --name late --no-progress --force
object del OBJ2 --force
object info NONE
stream info OBJ_OBJ --json
""")
COUNTERS = _lines("""
stream add COUNT --subjects COUNT.> --allow-counter --allow-direct --defaults --json
counter increment COUNT.a 5
counter increment COUNT.a 7
counter increment COUNT.b 1
counter get COUNT.a
counter get COUNT.none
counter view COUNT.a
counter list COUNT.>
counter increment COUNT.a -- -3
counter get COUNT.a
pub COUNT.a plain --jetstream
""")
CHECKS = _lines("""
server check connection --format json
server check stream --stream ORDERS --format json
server check stream --stream NONE --format json
server check stream --stream ORDERS --msgs-warn 1 --format json
server check consumer --stream ORDERS --consumer c8 --format json
server check consumer --stream ORDERS --consumer NONE --format json
server check jetstream --format json
server check kv --bucket KV --format json
server check kv --bucket NONE --format json
server check kv --bucket KV --key a --format json
server check message --stream ORDERS --subject ORDERS.a --age-warn 1h --age-critical 2h \\
--format json
server check request --subject nobody --payload x --format json
service ls
service ping
service info none
schema info io.nats.jetstream.api.v1.stream_info_response
errors lookup 10058
server mappings a.* b.$1 a.x
account report connections
account report statistics
account tls
events --count 0 --help
""")
SYSTEM = _lines("""
server ls --json
server ls 1
server ping 1
server info
server report connections --json
server report accounts --json
server report jetstream
server report jetstream
server report cpu --json
server report mem --json
server report health
server report routes
server report gateways
server report leafnodes
server report connections
server report accounts
server report accounts APP --json
server account info APP
server account info SYS
server account info NONE
server request variables
server request connections
server request connections --subscriptions
server request connections --filter-account APP
server request accounts
server request accounts --account APP
server request subscriptions
server request subscriptions --detail
server request jetstream
server request jetstream --streams
server request jetstream --consumer --config --account APP
server request jetstream --all
server request jetstream-health
server request jetstream-health --js-enabled
server request routes
server request gateways
server request leafnodes
server check server --name S1 --format json
server check meta --expect 1 --lag-critical 1 --seen-critical 1s --format json
rtt --json
account info
server report downgrade 0
""")
BACKUPS = _lines("""
stream backup ORDERS DIR/backup --consumers --no-progress
account backup DIR/account --consumers --force
stream purge ORDERS --subject ORDERS.a --force --json
stream purge ORDERS --seq 3 --force --json
stream purge ORDERS --keep 1 --force --json
stream purge ORDERS --force --json
stream info ORDERS --json
stream rm ORDERS --force
stream rm ORDERS --force
stream restore DIR/backup --no-progress
stream info ORDERS --json
consumer ls ORDERS --names
consumer info ORDERS c8 --json
stream get ORDERS 1 --json
stream restore DIR/backup --no-progress
pub ORDERS.a more --jetstream
""")
BENCHES = _lines("""
bench pub b --msgs 100 --no-progress
bench js pub sync B --create --msgs 50 --no-progress --stream B
bench js pub async B --msgs 100 --no-progress --stream B
bench js ordered --msgs 50 --no-progress --stream B
bench js consume --msgs 50 --no-progress --stream B
bench js fetch --msgs 50 --no-progress --stream B --consumer bf
kv add BKV
bench kv put --msgs 50 --no-progress --bucket BKV
bench kv get --msgs 50 --no-progress --bucket BKV
rtt 3 --json
""")
_CLEANING = _lines("""
stream rm MIRROR --force
stream rm SOURCED --force
kv del KV --force
kv del KV --force
object del OBJ --force
stream rm COPY --force
stream ls --names
account info
""")
CLEANING = [*(f"stream rm O{at} --force" for at in range(len(STREAM_OPTIONS))), *_CLEANING]
APPLICATION = [
    *BASICS, *_streams(), *_consumers(), *CONSUMERS, *FEEDS, *KEYS, *OBJECTS, *COUNTERS, *CHECKS,
]  # fmt: skip
SESSIONS = [("app", APPLICATION), ("sys", SYSTEM), ("app", [*BACKUPS, *BENCHES, *CLEANING])]

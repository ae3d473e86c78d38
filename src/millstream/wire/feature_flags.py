"""The feature flags of nats-server 2.15.1, in the position whose behaviour millstream has."""

FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}

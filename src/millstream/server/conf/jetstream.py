"""The ``jetstream`` block as it stands in a file."""

from millstream.server.conf.accounts import enabled
from millstream.server.conf.setting import Setting, Table, ignored, only_shown, read, unsupported
from millstream.server.conf.syntax import ConfBlock
from millstream.server.options.options import (
    MOST_SHARDS,
    ColdHistoryOptions,
    EncryptionOptions,
    JetStreamLimits,
    JetStreamOptions,
)

_ONE_SERVER = "it tunes clusters, and this server is one"
_OWN_STORE = "this store has its own way of keeping files"


def jetstream(setting: Setting) -> JetStreamOptions | None:
    """Read the block; None means JetStream stays off."""
    if isinstance(setting.value, bool):
        return JetStreamOptions() if setting.value else None
    if not isinstance(setting.value, ConfBlock):
        return JetStreamOptions() if enabled(setting) else None
    values = read(setting.value, _JETSTREAM, setting.findings)
    on = values.pop("enabled", True)
    encryption = {key: values.pop(key) for key in _ENCRYPTION_KEYS if key in values}
    if encryption:
        values["encryption"] = EncryptionOptions(**encryption)
    return JetStreamOptions(**values) if on else None


def _sync(setting: Setting) -> float | None:
    if isinstance(setting.value, str) and setting.value.lower() == "always":
        return None
    return setting.duration_or_seconds()


def _shards(setting: Setting) -> int:
    number = setting.integer()
    if not 1 <= number <= MOST_SHARDS:
        raise setting.wrong(f"must be 1 to {MOST_SHARDS}, not {number}")
    return number


def _limits(setting: Setting) -> JetStreamLimits:
    return JetStreamLimits(**read(setting.block(), _LIMITS, setting.findings))


def _batch(setting: Setting) -> dict[str, object]:
    return read(setting.block(), _BATCH, setting.findings)


def _absolute(setting: Setting) -> int:
    number = setting.size()
    if number < 0:
        raise setting.wrong(f"must not be negative, not {number}")
    return number


def _concurrent(setting: Setting) -> int:
    number = setting.integer()
    if not 4 <= number <= 8192:
        raise setting.wrong(f"must be 4 to 8192, not {number}")
    return number


def _cipher(setting: Setting) -> str:
    """Read the cipher as nats-server names it."""
    name = setting.text().lower()
    if name in ("chacha", "chachapoly"):
        return "chacha"
    if name == "aes":
        return "aes"
    raise setting.wrong(f"must be aes or chacha, not {name}")


def _share(setting: Setting) -> float:
    number = setting.value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= 1:
        raise setting.wrong(f"must be above 0 and at most 1, not {number}")
    return float(number)


def _cold(setting: Setting) -> ColdHistoryOptions:
    return ColdHistoryOptions(**read(setting.block(), _COLD, setting.findings))


def _count(setting: Setting) -> int:
    number = setting.integer()
    if number < 0:
        raise setting.wrong(f"must not be negative, not {number}")
    return number


def _parquet(setting: Setting) -> str:
    if setting.text() not in ("none", "plain", "all"):
        raise setting.wrong(f"must be none, plain or all, not {setting.text()}")
    return setting.text()


_COLD: Table = {
    "place": ("place", Setting.text),
    "hot_segments": ("hot_segments", _count),
    "hot_bytes": ("hot_bytes", _absolute),
    "cache_bytes": ("cache_bytes", _absolute),
    "parquet": ("parquet", _parquet),
}
_ENCRYPTION_KEYS = ("key", "key_file", "prev_key", "prev_key_file", "cipher")
_TPM = unsupported("keys in a TPM are not read; give the key itself or a file")
_BATCH: Table = {
    "max_inflight_per_stream": ("max_batch_inflight_per_stream", Setting.integer),
    "max_inflight_total": ("max_batch_inflight_total", Setting.integer),
    "max_msgs": ("max_batch_size", Setting.integer),
    "timeout": ("max_batch_timeout", Setting.duration),
}
_LIMITS: Table = {
    "max_ack_pending": ("max_ack_pending", Setting.integer),
    "max_ha_assets": ("max_ha_assets", only_shown(Setting.integer, _ONE_SERVER)),
    "default_max_consumers": ("default_max_consumers", Setting.integer),
    "max_request_batch": ("max_request_batch", Setting.integer),
    "duplicate_window": ("duplicate_window", Setting.duration),
    "batch": ("", _batch),
}
_JETSTREAM: Table = {
    **dict.fromkeys(("enable", "enabled"), ("enabled", Setting.switch)),
    **dict.fromkeys(("store", "store_dir", "storedir"), ("store_dir", Setting.text)),
    **dict.fromkeys(("sync", "sync_interval"), ("sync_interval", _sync)),
    **dict.fromkeys(("max_memory_store", "max_mem_store", "max_mem"), ("max_memory", Setting.size)),
    **dict.fromkeys(("max_file_store", "max_file"), ("max_store", Setting.size)),
    "wal_shards": ("wal_shards", _shards),
    "strict": ("strict", Setting.switch),
    "domain": ("domain", Setting.text),
    "limits": ("limits", _limits),
    "unique_tag": ("", ignored(Setting.text, _ONE_SERVER)),
    **dict.fromkeys(("key", "ek", "encryption_key"), ("key", Setting.text)),
    **dict.fromkeys(("prev_key", "prev_ek", "prev_encryption_key"), ("prev_key", Setting.text)),
    "key_file": ("key_file", Setting.text),
    "prev_key_file": ("prev_key_file", Setting.text),
    "cipher": ("cipher", _cipher),
    "tpm": ("", _TPM),
    "rewrite_ratio": ("rewrite_ratio", _share),
    "cold": ("cold", _cold),
    "extension_hint": ("", ignored(Setting.text, _ONE_SERVER)),
    "max_outstanding_catchup": ("", ignored(Setting.size, _ONE_SERVER)),
    "max_buffered_size": ("", ignored(Setting.size, _OWN_STORE)),
    "max_buffered_msgs": ("", ignored(Setting.integer, _OWN_STORE)),
    "request_queue_limit": ("", ignored(Setting.integer, _OWN_STORE)),
    "info_queue_limit": ("", ignored(Setting.integer, _OWN_STORE)),
    "meta_compact": ("", ignored(_absolute, _ONE_SERVER)),
    "meta_compact_size": ("", ignored(_absolute, _ONE_SERVER)),
    "meta_compact_sync": ("", ignored(Setting.switch, _ONE_SERVER)),
    "max_concurrent_io": ("", ignored(_concurrent, _OWN_STORE)),
}

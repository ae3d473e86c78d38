"""Records as the HTTP door shows them: one compact JSON object each."""

import msgspec

from millstream.topics.page.json_text import compact_list, shown

Fields = tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]

_encode = msgspec.json.encode
_values = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Renderer:
    """Turns records into JSON text for one topic and one set of wishes."""

    def __init__(
        self, topic: str, include_tags: bool, include_meta: bool, include_data: bool = True
    ) -> None:
        self._subject = topic.encode()
        self._tags = include_tags
        self._meta = include_meta
        self._data = include_data

    def join(self, records: list[Fields]) -> bytes:
        """Return records as JSON objects with commas between them.

        Most payloads are JSON already: they are checked and made compact together.
        """
        if len(records) == 1:
            return self.one(records[0])
        odd = self._odd(records)
        payloads = [record[3] for record, is_odd in zip(records, odd, strict=True) if not is_odd]
        text = b",".join(payloads)
        if b"$base64" in text or b"\\u" in text or not _each_is_json(text, payloads):
            return b",".join([self.one(record) for record in records])
        pieces = [
            self.one(record)
            if is_odd
            else b'{"$seq":%d,"$ts":%d,"data":%b}' % (record[0], record[1] // 1_000_000, record[3])
            for record, is_odd in zip(records, odd, strict=True)
        ]
        try:
            return compact_list(b",".join(pieces))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return b",".join([self.one(record) for record in records])

    def _odd(self, records: list[Fields]) -> list[bool]:
        """Return of each record whether there is more to show of it than its data."""
        if not self._data:
            return [True] * len(records)
        own, tags = self._subject, self._tags
        return [
            bool(headers or meta or node or (tags and tag) or subject != own)
            for _, _, subject, _, headers, tag, node, meta in records
        ]

    def one(self, record: Fields) -> bytes:
        """Return a record as JSON; what it does not have is left out, never null."""
        seq, ts_ns, subject, payload, headers, tag, node, meta = record
        parts = [b'{"$seq":%d,"$ts":%d' % (seq, ts_ns // 1_000_000)]
        if node:
            parts.append(b',"$node":' + text(node))
        if tag and self._tags:
            parts.append(b',"$tag":' + text(tag))
        if subject != self._subject:
            parts.append(b',"$subject":' + text(subject))
        if self._data:
            parts.append(b',"data":' + shown(payload))
        if self._meta and (meta or headers):
            parts.append(b',"meta":' + (shown(meta) if meta else headers_object(headers)))
        parts.append(b"}")
        return b"".join(parts)


def _each_is_json(text: bytes, payloads: list[bytes]) -> bool:
    """Return whether each payload alone is JSON; ``text`` is all of them with commas between.

    Together they may make sense where they do not one by one, so each is compared.
    """
    try:
        return [bytes(value) for value in _values(b"[%b]" % text)] == payloads
    except (msgspec.DecodeError, RecursionError):
        return False


def text(value: bytes) -> bytes:
    """Return bytes as a JSON string; what is no UTF-8 shows as the replacement character."""
    return _encode(value.decode("utf-8", "replace"))


def headers_object(block: bytes) -> bytes:
    """Return a NATS header block as an object; a repeated name has its values in a list."""
    found: dict[str, str | list[str]] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, raw = line.partition(b":")
        if not colon:
            continue
        key, value = name.decode("utf-8", "replace"), raw.strip().decode("utf-8", "replace")
        before = found.get(key)
        if before is None:
            found[key] = value
        elif isinstance(before, list):
            before.append(value)
        else:
            found[key] = [before, value]
    return _encode(found)

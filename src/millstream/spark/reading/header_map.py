"""A NATS header block as the map of lists that the ``headers`` column holds."""


def parse_headers(block: bytes) -> list[tuple[str, list[str]]]:
    """Return each name with all its values; a line without a colon is skipped."""
    values: dict[str, list[str]] = {}
    for line in block.decode(errors="replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            values.setdefault(name.strip(), []).append(value.strip())
    return list(values.items())

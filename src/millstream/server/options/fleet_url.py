"""What the URL of a fleet's object store may look like."""

from urllib.parse import urlsplit

SCHEMES = ("s3", "gs", "az", "file")


def problem_of(url: str) -> str:
    """Return what is wrong with a URL, nothing when it can be used."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        return "must be s3://bucket/prefix, gs://, az:// or file:///directory"
    if parts.scheme == "file":
        is_path = parts.path.startswith("/") and not parts.netloc
        return "" if is_path else "must name a directory as file:///directory"
    return "" if parts.netloc else "must name a bucket"

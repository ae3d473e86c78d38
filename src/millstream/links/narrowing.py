"""What is left of a wish where only some subjects may pass."""

from millstream.accounts.permissions import Rule


def intersection(a: str, b: str) -> str | None:
    """Return the pattern of all subjects that both patterns match, None when there are none."""
    left, right = a.split("."), b.split(".")
    made: list[str] = []
    for at in range(max(len(left), len(right))):
        mine = left[at] if at < len(left) else ""
        theirs = right[at] if at < len(right) else ""
        if mine == ">" and theirs:
            return ".".join(made + right[at:])
        if theirs == ">" and mine:
            return ".".join(made + left[at:])
        if not mine or not theirs:
            return None
        if mine == "*":
            made.append(theirs)
        elif theirs in ("*", mine):
            made.append(mine)
        else:
            return None
    return ".".join(made)


def narrowed(subject: str, rule: Rule) -> list[str]:
    """Return the patterns that ``subject`` comes to under the rule's allow list."""
    if rule.allow is None or rule.permits(subject):
        return [subject]
    found = (intersection(subject, entry.pattern) for entry in rule.allow if not entry.queue)
    return list(dict.fromkeys(pattern for pattern in found if pattern is not None))

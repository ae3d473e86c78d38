"""What accounts offer each other must be what they take: checks over all of them together."""

from collections.abc import Iterator, Sequence

from millstream.server.options.auth_options import AccountOptions, ExportOptions, ImportOptions
from millstream.subjects.subject import has_wildcard, is_literal, is_pattern, is_subset, overlap
from millstream.subjects.transform import BadTransform, SubjectTransform


def sharing_problems(accounts: Sequence[AccountOptions]) -> Iterator[str]:
    """Go through what is wrong with the exports and imports, in words."""
    by_name = {account.name: account for account in accounts}
    for account in accounts:
        for export in account.exports:
            yield from _export_problems(account, export, by_name)
    for account in accounts:
        taken: set[tuple[str, str]] = set()
        for item in account.imports:
            problem = _import_problem(account, item, by_name)
            if problem is None and not item.service and (item.account, item.subject) in taken:
                problem = "the same stream is imported twice"
            taken.add((item.account, item.subject))
            if problem is not None:
                yield f"has a bad import of {item.subject!r} in {account.name}: {problem}"


def _export_problems(
    account: AccountOptions, export: ExportOptions, by_name: dict[str, AccountOptions]
) -> Iterator[str]:
    for name in export.accounts or ():
        if name not in by_name:
            yield f"has no account {name!r}, which {account.name} exports to"
    where = f"has a bad export of {export.subject!r} in {account.name}"
    position = export.account_token_position
    tokens = export.subject.split(".")
    if position > 0 and (len(tokens) < position or tokens[position - 1] != "*"):
        yield f"{where}: token {position} must be * for the account's name to stand there"
    if export.latency is not None:
        services = [other.subject for other in account.exports if other.service]
        results = export.latency.subject
        if not is_literal(results) or any(is_subset(results, service) for service in services):
            yield f"{where}: latency cannot be reported to {results!r}"
        elif export.response_type != "singleton":
            yield f"{where}: latency is measured for single responses only"


def _import_problem(
    account: AccountOptions, item: ImportOptions, by_name: dict[str, AccountOptions]
) -> str | None:
    source = by_name.get(item.account)
    if source is None:
        return f"there is no account {item.account!r}"
    if item.service and not (is_pattern(item.subject) and is_pattern(item.to)):
        return "not a valid subject"
    if not offered(source, item, account.name):
        return f"{source.name} does not export it to {account.name}"
    if item.prefix and not is_literal(item.prefix.removesuffix(".")):
        return f"the prefix {item.prefix!r} must have no wildcards"
    if _forms_cycle(item, source, by_name, {account.name}):
        return "the imports go round in a circle"
    return _rename_problem(item)


def offered(source: AccountOptions, item: ImportOptions, importer: str) -> bool:
    """Say whether ``source`` exports what ``importer`` asks for."""
    exports = [export for export in source.exports if export.service == item.service]
    same = [export for export in exports if export.subject == item.subject]
    wider = [export for export in exports if is_subset(item.subject, export.subject)]
    tokens = [] if same else item.subject.split(".")
    return any(_open_to(export, importer, tokens) for export in (same[-1:] or wider))


def _open_to(export: ExportOptions, importer: str, tokens: list[str]) -> bool:
    position = export.account_token_position
    if position > 0:
        return position <= len(tokens) and tokens[position - 1] == importer
    return not export.accounts or importer in export.accounts


def _forms_cycle(
    item: ImportOptions, source: AccountOptions, by_name: dict[str, AccountOptions], seen: set[str]
) -> bool:
    """Follow what ``source`` itself imports under the subject that ``item`` takes from it."""
    for further in source.imports:
        local = further.to or further.prefix + further.subject
        if further.service != item.service or not overlap(item.subject, local):
            continue
        if further.account in seen:
            return True
        after = by_name.get(further.account)
        if after is not None and _forms_cycle(further, after, by_name, seen | {source.name}):
            return True
    return False


def _rename_problem(item: ImportOptions) -> str | None:
    if not item.to or item.to == item.subject or not has_wildcard(item.subject):
        return None
    source, to = (_untokenized(item.to), item.subject) if item.service else (item.subject, item.to)
    try:
        SubjectTransform(source, _tokenized(to), strict=True)
    except BadTransform as error:
        return str(error)
    return None


def _tokenized(subject: str) -> str:
    """Number the wildcards: ``a.*.*`` becomes ``a.$1.$2``."""
    made, number = [], 0
    for token in subject.split("."):
        if token == "*":
            number += 1
            made.append(f"${number}")
        else:
            made.append(token)
    return ".".join(made)


def _untokenized(subject: str) -> str:
    """Turn numbered placeholders back into wildcards."""
    return ".".join(
        "*" if token[:1] == "$" and token[1:].isdecimal() else token for token in subject.split(".")
    )

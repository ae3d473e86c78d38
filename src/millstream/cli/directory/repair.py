"""``millstream repair``: make a damaged data directory sound again, with a copy of what it was."""

from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from millstream.cli.command import command
from millstream.cli.directory.key_files import key_file_option, sealing_ring
from millstream.store.disk.files import OsFiles
from millstream.store.upkeep.inspect import CLEAN, UNUSABLE, Lost
from millstream.store.upkeep.repair import RepairPlan, plan_repair, repair_directory
from millstream.streams.unnamed_logs import adopted


@command(
    "millstream repair ./millstream-data",
    "millstream repair ./millstream-data --yes --keep /mnt/spare/as-it-was",
)
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@key_file_option
@click.option("--yes", "agreed", is_flag=True, help="Do not ask.")
@click.option(
    "--keep",
    "kept",
    type=click.Path(path_type=Path),
    help="Path for the copy of the directory.  [default: beside it]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and do not ask.")
def repair(
    directory: Path, key_file: tuple[str, ...], agreed: bool, kept: Path | None, as_json: bool
) -> int:
    """Repair DIRECTORY, and put on record what stays lost.

    Prints what is damaged, what it will rebuild and which records stay lost; then asks, copies the
    directory, and repairs it. Stop the server first. Exits with 0 when the directory is clean, 3
    when you did not agree and damage is left, 4 when it cannot be repaired.
    """
    place, files, ring = directory.resolve(), OsFiles(), sealing_ring(key_file)
    copy = kept.resolve() if kept else _beside(place)
    plan = plan_repair(str(place), files, ring, adopted)
    if not as_json:
        _show(plan, copy)
    status = _verdict(plan)
    if status is None and (agreed or (not as_json and click.confirm("Repair it?"))):
        plan.after = repair_directory(str(place), files, ring, str(copy), adopted)
        status = plan.after.status
        if not as_json:
            click.echo(f"repaired: {plan.after.logs} logs, {plan.after.records} records; {copy}")
            click.echo("holds the directory as it was: remove it once nothing is missed")
    if as_json:
        click.echo(msgspec.json.encode(_plain(plan, status, copy)))
    return plan.before.status if status is None else status


def _verdict(plan: RepairPlan) -> int | None:
    """Return the exit code where nothing is to be done or can be."""
    if plan.error:
        return UNUSABLE
    return None if plan.is_needed else CLEAN


def _beside(place: Path) -> Path:
    now = datetime.now(UTC)
    return place.with_name(f"{place.name}.before-repair-{now:%Y%m%dT%H%M%SZ}")


def _show(plan: RepairPlan, copy: Path) -> None:
    before = plan.before
    if not plan.is_needed:
        click.echo(f"clean: {before.logs} logs, {before.records} records; nothing to repair")
        return
    if before.error:
        click.echo(f"unusable: {before.error}")
    for line in before.findings:
        click.echo(line)
    if plan.error:
        click.echo(f"cannot be repaired: {plan.error}")
        return
    click.echo("to be made anew:")
    for line in plan.rebuilt:
        click.echo(f"  {line}")
    lost = [each for each in plan.after.lost if not _was_recorded(each, before.lost)]
    click.echo("lost for good:" if lost else "no record is lost")
    for each in lost:
        click.echo(f"  log={each.log_id} seq={each.first}-{each.last} reason={each.reason}")
    click.echo(f"afterwards: {plan.after.logs} logs, {plan.after.records} records")
    click.echo(f"the directory as it is now is kept in {copy}")


def _was_recorded(lost: Lost, before: list[Lost]) -> bool:
    return any(
        each.recorded
        and each.log_id == lost.log_id
        and each.first <= lost.first
        and each.last >= lost.last
        for each in before
    )


def _plain(plan: RepairPlan, status: int | None, copy: Path) -> dict[str, object]:
    return {
        "before": plan.before.plain(),
        "rebuilt": plan.rebuilt,
        "after": plan.after.plain(),
        "error": plan.error,
        "repaired": status == CLEAN and plan.is_needed,
        "kept": str(copy),
    }

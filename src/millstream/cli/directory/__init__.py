"""Commands that work on a data directory: backup, restore, dump, fsck, repair, scrub."""

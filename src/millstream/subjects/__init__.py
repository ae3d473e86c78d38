"""Names and interest: what a subject is and who wants it. No I/O."""

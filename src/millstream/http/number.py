"""Whole numbers in text that anybody may have sent."""


def whole_number(text: str, most: int) -> int | None:
    """Return what plain digits say; None for anything else, and above ``most``."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):
        return None  # thousands of digits are more than Python reads
    number = int(digits)
    return number if number <= most else None

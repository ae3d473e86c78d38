"""An end that nothing is prepared for."""


class Killed(BaseException):
    """What no code expects of a disk or a clock."""

"""JwtKind: what a JWT is about."""

from enum import Enum


class JwtKind(Enum):
    """The word that stands in the JWT itself."""

    OPERATOR = "operator"
    ACCOUNT = "account"
    USER = "user"
    ACTIVATION = "activation"

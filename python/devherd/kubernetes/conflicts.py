"""Changing an object that others change, too."""

import http
from collections.abc import Callable
from typing import TypeVar

from devherd.kubernetes.api import ApiError

Answer = TypeVar("Answer")

_ATTEMPTS = 4


def past_conflicts(change: Callable[[], Answer]) -> Answer:
    """What `change` answers, which looks at the object anew each time it is called. Raises ApiError.

    Others change a busy node between a look at it and a change of it.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return change()
        except ApiError as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise
    return change()

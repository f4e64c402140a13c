"""What KFD says of a GPU: lines of `<event> <rest>`, numbers hexadecimal (include/uapi/linux/kfd_ioctl.h). Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

PRE_RESET, POST_RESET = 3, 4
"""`KFD_SMI_EVENT_GPU_PRE_RESET` and `_POST_RESET`; the line is `<event> <number of the reset> <cause>`."""
MASK = 1 << (PRE_RESET - 1) | 1 << (POST_RESET - 1)
"""`KFD_SMI_EVENT_MASK_FROM_INDEX` of both."""
_LONGEST_CAUSE = 100


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset of a GPU begins, or is over."""

    begins: bool
    cause: str = ""
    """In the driver's words; drivers before Linux 6.11 do not say it."""


def resets_in(said: bytes) -> Iterator[Reset]:
    """The resets that whole lines tell of, in order; other events and what is no line of KFD's are left out."""
    for line in said.split(b"\n"):
        event, _, rest = line.decode("utf-8", "replace").partition(" ")
        number, _, cause = rest.partition(" ")
        if event in {f"{PRE_RESET:x}", f"{POST_RESET:x}"} and _is_hexadecimal(number):
            printable = "".join(letter for letter in cause if letter.isprintable())
            yield Reset(event == f"{PRE_RESET:x}", printable.strip()[:_LONGEST_CAUSE])


def _is_hexadecimal(word: str) -> bool:
    return bool(word) and all(letter in "0123456789abcdef" for letter in word)

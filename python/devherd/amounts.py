"""Numbers of things and lengths of time, as people read them."""


def amount(number: int, noun: str) -> str:
    """`1 device`, `22 devices`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

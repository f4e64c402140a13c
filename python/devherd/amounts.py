"""Numbers of things and lengths of time, as people read them."""


def amount(number: int, noun: str) -> str:
    """`1 device`, `22 devices`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def duration(seconds: float) -> str:
    """`45 s`, `3 h 12 min`, `2 d 4 h`: the two largest units of a length of time."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number or (parts and len(parts) < 2):
            parts.append(f"{number} {unit}")
    said = [part for part in parts[:2] if not part.startswith("0 ")]
    return " ".join(said) or "0 s"

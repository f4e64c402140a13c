"""`make soak`: every row of the fault matrix again and again, and what came of it.

Settings are environment variables: DEVHERD_SOAK_ATTEMPTS (1000 in all), DEVHERD_SOAK_MINUTES (15; no row is begun
anew after that), DEVHERD_SOAK_JOBS (rows at a time, 4: most of their time they wait), DEVHERD_SOAK_ROWS (words of
their names), DEVHERD_TEST_SEED. Exit code 1 when anything was lost.
"""

import asyncio
import multiprocessing
import os
import secrets
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from all_rows import ROWS
from matrix import Figures, play

TURN = 10
"""Attempts of a row before others have their turn."""


def main() -> int:
    """Play, print, judge."""
    seed = os.environ.get("DEVHERD_TEST_SEED") or secrets.token_hex(4)
    attempts = int(os.environ.get("DEVHERD_SOAK_ATTEMPTS", "1000"))
    minutes = float(os.environ.get("DEVHERD_SOAK_MINUTES", "15"))
    jobs = int(os.environ.get("DEVHERD_SOAK_JOBS", "4"))
    words = os.environ.get("DEVHERD_SOAK_ROWS", "")
    obstacles = {name: obstacle for name in ROWS if words in name and (obstacle := ROWS[name].obstacle())}
    for name, obstacle in obstacles.items():
        print(f"{name}: NOT TESTED: {obstacle}")
    names = [name for name in ROWS if words in name and name not in obstacles]
    print(
        f"{attempts} attempts on {len(names)} rows, at most {minutes:.0f} minutes, DEVHERD_TEST_SEED={seed}",
        flush=True,
    )
    began = time.monotonic()
    figures = _play_all(_turns(names, attempts), seed, began + 60 * minutes, jobs)
    _print_matrix(names, figures)
    lost = sum(each.lost for each in figures.values())
    healed = sorted(seconds for each in figures.values() for seconds in each.healed)
    total = sum(each.attempts for each in figures.values())
    print(
        f"\n{total} attempts in {time.monotonic() - began:.0f} s, lost: {lost}, time to healed: {_percentiles(healed)}"
    )
    return 1 if lost else 0


def _turns(names: list[str], attempts: int) -> list[tuple[str, int]]:
    """Who plays how often, in turns, so that a run that is cut short has seen every row."""
    shares = sum(ROWS[name].share for name in names)
    left = {name: max(1, round(attempts * ROWS[name].share / shares)) for name in names}
    turns = []
    while left:
        for name in list(left):
            count = min(TURN, left[name])
            turns.append((name, count))
            left[name] -= count
            if not left[name]:
                del left[name]
    return turns


def _play_all(turns: list[tuple[str, int]], seed: str, stop_at: float, jobs: int) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    done, told = 0, time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        playing = {
            pool.submit(_play_turn, name, count, f"{seed}/{number}", stop_at): name
            for number, (name, count) in enumerate(turns)
        }
        for turn in as_completed(playing):
            _add(figures.setdefault(playing[turn], Figures()), turn.result())
            for failure in turn.result().failures:
                print(f"\n{failure}", flush=True)
            done += 1
            if time.monotonic() - told > 15:
                told = time.monotonic()
                _print_progress(figures, done, len(turns))
    return figures


def _play_turn(name: str, count: int, seed: str, stop_at: float) -> Figures:
    return asyncio.run(play(ROWS[name], count, seed, stop_at))


def _add(total: Figures, turn: Figures) -> None:
    total.attempts += turn.attempts
    total.healed += turn.healed
    total.failures += turn.failures


def _print_progress(figures: dict[str, Figures], done: int, turns: int) -> None:
    attempts = sum(each.attempts for each in figures.values())
    lost = sum(each.lost for each in figures.values())
    print(f"{done} of {turns} turns: {attempts} attempts, {lost} lost", flush=True)


def _print_matrix(names: list[str], figures: dict[str, Figures]) -> None:
    print(f"\n{'row':52} {'attempts':>8} {'lost':>4}  time to healed")
    for name in names:
        each = figures.get(name, Figures())
        print(f"{name:52} {each.attempts:8} {each.lost:4}  {_percentiles(each.healed)}")


def _percentiles(seconds: list[float]) -> str:
    if not seconds:
        return "-"
    in_order = sorted(seconds)
    half, nearly_all = (in_order[min(len(in_order) - 1, int(len(in_order) * part))] for part in (0.5, 0.99))
    return f"p50 {half:.3f} s, p99 {nearly_all:.3f} s"


if __name__ == "__main__":
    sys.exit(main())

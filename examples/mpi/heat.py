"""Heat diffusion on MPI, in Python with mpi4py and NumPy: the same plate, steps and checks as `pulc heat`, which runs on PULC's ports,
and the same field to the last bit. Neighbours exchange their edges in every step; every 20 steps the plate is gathered to rank 0.

    mpiexec -n 4 python3 heat.py [--size WIDTHxHEIGHT] [--steps N] [-r R] [--boundary fixed|insulated] [--json]
"""

import argparse
import json
import math
import sys
import time

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", default="512x512")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("-r", type=float, default=0.25)
    parser.add_argument("--boundary", choices=["fixed", "insulated"], default="fixed")
    parser.add_argument("--gather-every", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.columns, given.rows = (int(side) for side in given.size.split("x"))
    if given.rows < SIZE or not 0 < given.r <= 0.25:
        parser.error("every rank needs a row, r is above 0 and at most 0.25")
    return given


def length(x, y):
    return np.sqrt(x * x + y * y)


def stroke(x, y, x0, y0, x1, y1):
    dx, dy = x1 - x0, y1 - y0
    along = np.clip(((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
    return length(x - x0 - along * dx, y - y0 - along * dy)


def bow(where, x, y, radius):
    return np.where(where, np.abs(length(x, y) - radius), np.inf)


def letters(x, y):
    """Distances from the strokes of P, U, L and C, which stand side by side."""
    least = lambda *all_of: np.minimum.reduce(all_of)
    p, u, l, c = (x - left for left in (0.0, 0.95, 1.93, 2.83))
    yield least(stroke(p, y, 0.0, -0.5, 0.0, 0.5), stroke(p, y, 0.0, -0.5, 0.28, -0.5),
                stroke(p, y, 0.0, 0.04, 0.28, 0.04), bow(p >= 0.28, p - 0.28, y + 0.23, 0.27))
    yield least(stroke(u, y, 0.0, -0.5, 0.0, 0.22), stroke(u, y, 0.56, -0.5, 0.56, 0.22),
                bow(y >= 0.22, u - 0.28, y - 0.22, 0.28))
    yield least(stroke(l, y, 0.0, -0.5, 0.0, 0.5), stroke(l, y, 0.0, 0.5, 0.50, 0.5))
    yield least(stroke(c, y, 0.0, -0.22, 0.0, 0.22), bow(y <= -0.22, c - 0.28, y + 0.22, 0.28),
                bow(y >= 0.22, c - 0.28, y - 0.22, 0.28), length(c - 0.56, np.abs(y) - 0.22))


def glow(rows, columns, band):
    """The word PULC on a cold plate."""
    word, pen, aspect = 2.83 + 0.56, 0.095, columns / rows
    high = min(0.62, aspect * 0.84 / word)
    y = ((np.arange(*band) + 0.5) / rows)[:, None]
    x = ((np.arange(columns) + 0.5) / columns * aspect)[None, :]
    x, y = np.broadcast_arrays((x - aspect / 2.0) / high + word / 2.0, (y - 0.5) / high)
    return np.clip((pen - np.minimum.reduce(list(letters(x, y)))) / 0.03 + 0.5, 0.0, 1.0)


def mode(n, which):
    return np.sin(math.pi * (which + 1) / (n + 1))


def bands(rows):
    """First row of each rank's band, and the end."""
    return [rank * (rows // SIZE) + min(rank, rows % SIZE) for rank in range(SIZE + 1)]


class Plate:
    """This rank's band of rows, with a row and a column of ghost cells around it."""

    def __init__(self, start, r, insulated):
        rows, columns = start.shape
        self.now = np.zeros((rows + 2, columns + 2))
        self.now[1:-1, 1:-1] = start
        self.next = np.zeros_like(self.now)
        self.r, self.insulated = r, insulated
        self.up = RANK - 1 if RANK > 0 else MPI.PROC_NULL
        self.down = RANK + 1 if RANK + 1 < SIZE else MPI.PROC_NULL

    def cells(self):
        return np.ascontiguousarray(self.now[1:-1, 1:-1])

    def step(self):
        now = self.now
        if self.insulated:
            if self.up == MPI.PROC_NULL:
                now[0] = now[1]
            if self.down == MPI.PROC_NULL:
                now[-1] = now[-2]
            now[1:-1, 0], now[1:-1, -1] = now[1:-1, 1], now[1:-1, -2]
        edges = [
            WORLD.Irecv(now[0, 1:-1], self.up, 1),
            WORLD.Irecv(now[-1, 1:-1], self.down, 0),
            WORLD.Isend(now[1, 1:-1], self.up, 0),
            WORLD.Isend(now[-2, 1:-1], self.down, 1),
        ]
        self.compute(2, -2)
        MPI.Request.Waitall(edges)
        self.compute(1, 2)
        self.compute(len(now) - 2, -1)
        self.now, self.next = self.next, now

    def compute(self, first, end):
        """Rows from `first` to before `end`, each cell by the same operations in the same order everywhere."""
        now, end = self.now, end % len(self.now)
        if first >= end:
            return
        here = now[first:end, 1:-1]
        around = (now[first - 1:end - 1, 1:-1] + now[first + 1:end + 1, 1:-1]) \
            + (now[first:end, :-2] + now[first:end, 2:])
        self.next[first:end, 1:-1] = here + self.r * (around - 4.0 * here)


class Gather:
    """The whole plate on rank 0, from a copy, so that the steps go on meanwhile."""

    def __init__(self, rows, columns):
        places = bands(rows)
        counts = [(end - first) * columns for first, end in zip(places, places[1:])]
        self.whole = np.empty((rows, columns)) if RANK == 0 else None
        self.layout = [self.whole, counts, [place * columns for place in places[:-1]], MPI.DOUBLE]
        self.own, self.request = None, MPI.REQUEST_NULL

    def begin(self, plate):
        self.request.Wait()
        self.own = plate.cells()
        self.request = WORLD.Igatherv(self.own, self.layout if RANK == 0 else None, 0)

    def done(self, plate):
        self.begin(plate)
        self.request.Wait()
        return self.whole


def hash_of(field):
    """FNV-1a over the bits."""
    found = 0xCBF29CE484222325
    for byte in field.tobytes():
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{found:016x}"


def mode_error(field, r, steps):
    rows, columns = field.shape
    term = sum(math.sin(math.pi / (n + 1) / 2.0) ** 2 for n in field.shape)
    factor = math.exp(steps * math.log1p(-4.0 * r * term))
    exact = factor * (mode(rows, np.arange(rows))[:, None] * mode(columns, np.arange(columns))[None, :])
    return float(np.max(np.abs(field - exact)) / np.max(np.abs(exact)))


def main():
    given = options()
    rows, columns, insulated = given.rows, given.columns, given.boundary == "insulated"
    band = bands(rows)[RANK:RANK + 2]
    plate, gather = Plate(glow(rows, columns, band), given.r, insulated), Gather(rows, columns)
    before = gather.done(plate)
    before = before.copy() if RANK == 0 else None
    WORLD.Barrier()
    begin = time.perf_counter()
    for now in range(given.steps):
        plate.step()
        if given.gather_every and (now + 1) % given.gather_every == 0:
            gather.begin(plate)
    field = gather.done(plate)
    seconds = time.perf_counter() - begin
    field = field.copy() if RANK == 0 else None

    # A short run of its own with a start whose decay is known exactly.
    mode_steps = min(given.steps, 500)
    start = mode(rows, np.arange(*band))[:, None] * mode(columns, np.arange(columns))[None, :]
    check = Plate(start, given.r, False)
    for _ in range(mode_steps):
        check.step()
    decayed = gather.done(check)
    node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    nodes = WORLD.allreduce(int(node.rank == 0))
    node.Free()

    good = True
    if RANK == 0:
        error = mode_error(decayed, given.r, mode_steps)
        drift = abs(math.fsum(field.flat) - math.fsum(before.flat)) if insulated else None
        drift_max = 4.0 * sys.float_info.epsilon * float(np.abs(before).sum()) * (given.steps + 1) if insulated else None
        good = error <= 1e-12 and (drift is None or drift <= drift_max)
        report = {
            "program": "heat", "width": columns, "height": rows, "steps": given.steps, "r": given.r,
            "ranks": SIZE, "nodes": nodes, "decomposition": [SIZE, 1], "seconds": seconds,
            "cells_per_second": rows * columns * given.steps / seconds if seconds > 0 else 0.0, "hash": hash_of(field),
            "traffic": [], "verification": {"mode_error": error, "mode_steps": mode_steps, "sum_drift": drift,
                                            "sum_drift_max": drift_max}, "png": None, "gif": None,
        }
        if given.json:
            print(json.dumps(report, separators=(",", ":")))
        else:
            print(f"{columns}x{rows} cells, {given.steps} steps, {SIZE} ranks on {nodes} nodes: {seconds:.3f} s")
            print(f"field {report['hash']}")
            print(f"slowest mode off its exact decay by {error:.1e} after {mode_steps} steps")
            print(f"verification {'passed' if good else 'FAILED'}")
    return 0 if WORLD.bcast(good) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes the tables of the generators (analysis/generate.cc) and the quantiles that check them.

  make_inverse_cdf.py tables    > analysis/inverse_cdf_tables.inc
  make_inverse_cdf.py quantiles > data/golden/quantiles.csv

Needs mpmath (PyPI, checked with 1.4.1). The output is the same on every machine: all arithmetic has
70 decimal digits and ends in one rounding to binary64.

Every distribution here is a sign times a magnitude x whose two-sided tail probability p = P(|X| > x)
is uniform on (0, 1). Piece k holds p in [2^-(k+1), 2^-k) as a polynomial of degree 11 in t, which runs
over [-1, 1) with p. In piece 0 the variable is c = 1 - p in (0, 1/2], and where the magnitude starts
at 0 the polynomial is x / c, so that the relative error stays small there as well. The log-normal
magnitude is exp(|z|); the generator takes the reciprocal for negative z.

The quantiles come from other formulas than the tables (erfinv and the incomplete beta function).
"""
import random
import sys

import mpmath
from mpmath import mp, mpf

mp.dps = 70
DEGREE = 11
PIECES = 63  # the generator has 62 random bits for p and its smallest p is 2^-63
NAMES = ["normal", "laplace", "student5", "student3", "lognormal"]


def tail(name, x):
    """P(|X| > x)."""
    if name == "normal":
        return mpmath.erfc(x / mpmath.sqrt(2))
    if name == "student3":
        u = x / mpmath.sqrt(3)
        return 1 - 2 / mp.pi * (mpmath.atan(u) + u / (1 + u * u))
    u = x / mpmath.sqrt(5)
    w = 1 / (1 + u * u)
    return 1 - 2 / mp.pi * (mpmath.atan(u) + u * w * (1 + 2 * w / 3))


def density(name, x):
    """Density of |X|."""
    if name == "normal":
        return mpmath.sqrt(2 / mp.pi) * mpmath.exp(-x * x / 2)
    if name == "student3":
        return 4 / (mp.pi * mpmath.sqrt(3)) / (1 + x * x / 3) ** 2
    return 16 / (3 * mp.pi * mpmath.sqrt(5)) / (1 + x * x / 5) ** 3


def magnitude(name, p):
    """x with P(|X| > x) = p, by bisection in the exponent of x and then Newton's method."""
    if name == "laplace":
        return -mpmath.log(p)
    if name == "lognormal":
        return mpmath.exp(magnitude("normal", p))
    low, high = mpf(-40), mpf(30)
    for _ in range(24):
        middle = (low + high) / 2
        if tail(name, mpf(2) ** middle) > p:
            low = middle
        else:
            high = middle
    x = mpf(2) ** ((low + high) / 2)
    for _ in range(5):
        x += (tail(name, x) - p) / density(name, x)
    return x


def starts_at_zero(name):
    return name != "lognormal"


def piece_function(name, k):
    """The function of t in [-1, 1] that the polynomial of piece k approximates."""
    if k > 0:
        return lambda t: magnitude(name, mpf(2) ** -(k + 1) * (1 + (t + 1) / 2))

    def central(t):
        c = (t + 1) / 4
        x = magnitude(name, 1 - c)
        return x / c if starts_at_zero(name) else x

    return central


def polynomial(f):
    """Coefficients, lowest degree first, of the interpolant in the Chebyshev nodes."""
    n = DEGREE + 1
    nodes = [mpmath.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    values = [f(t) for t in nodes]
    # Newton's divided differences, then expansion into powers of t.
    table = list(values)
    for level in range(1, n):
        for i in range(n - 1, level - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (nodes[i] - nodes[i - level])
    power = [mpf(0)] * n
    for i in range(n - 1, -1, -1):
        shifted = [mpf(0)] + power[:-1]
        power = [s - nodes[i] * q for s, q in zip(shifted, power)]
        power[0] += table[i]
    return [float(q) for q in power]


def largest_error(f, coefficients):
    """Relative error of the binary64 Horner evaluation at points between the nodes."""
    worst = 0.0
    for i in range(17):
        t = min(-1 + i / 8, 1 - 2.0**-20) if i else -1 + 2.0**-20
        value = 0.0
        for q in reversed(coefficients):
            value = value * t + q
        exact = f(mpf(t))
        worst = max(worst, float(abs(value - exact) / exact))
    return worst


def write_tables():
    print("// Written by tools/make_inverse_cdf.py tables; do not edit. Coefficients of the")
    print("// polynomials in t, lowest degree first; see the head of that script.")
    print(f"inline constexpr int kPieces = {PIECES};")
    print(f"inline constexpr int kCoefficients = {DEGREE + 1};")
    for name in NAMES:
        rows, worst = [], 0.0
        for k in range(PIECES):
            f = piece_function(name, k)
            row = polynomial(f)
            worst = max(worst, largest_error(f, row))
            rows.append(row)
        print(f"// Largest relative error found: {worst:.1e}.")
        print(f"inline constexpr double k{name.capitalize()}[kPieces][kCoefficients] = {{")
        for row in rows:
            cells = [q.hex() for q in row]
            print("    {" + ", ".join(cells) + "},")
        print("};")
        print(f"{name}: largest relative error {worst:.2e}", file=sys.stderr)


def other_magnitude(name, p):
    """As magnitude(), from mpmath's own special functions."""
    if name == "laplace":
        return mpmath.log(1 / p)
    if name in ("normal", "lognormal"):
        z = mpmath.sqrt(2) * mpmath.erfinv(1 - p)
        return z if name == "normal" else mpmath.exp(z)
    nu = mpf(5) if name == "student5" else mpf(3)

    def log_tail(log_x):
        x = mpmath.exp(log_x)
        y = nu / (nu + x * x)
        return mpmath.log(mpmath.betainc(nu / 2, mpf(1) / 2, 0, y, regularized=True)) - mpmath.log(p)

    start = -mpmath.log(p) / nu if p < mpf(1) / 2 else mpmath.log(1 - p)
    return mpmath.exp(mpmath.findroot(log_tail, (start, start + mpf(1) / 8), tol=1e-60))


def write_quantiles():
    print("# Magnitudes x with P(|X| > x) = tail / 2^64, rounded to binary64 (hexadecimal).")
    print(f"# Written by tools/make_inverse_cdf.py quantiles with mpmath {mpmath.__version__}")
    print("# (erfinv, betainc) at 70 digits; sorted by tail within a distribution.")
    print("distribution,tail,magnitude")
    draw = random.Random(2).getrandbits
    tails = set()
    for k in range(PIECES):
        for _ in range(2):
            tails.add((1 << 63 | draw(63)) >> k & ~3 | 2)
    # Near p = 1 the magnitude goes to 0; near an octave's edge two pieces meet.
    for k in range(2, 62, 5):
        tails.add((1 << 64) - (1 << k) - 2)
        tails.add((1 << k + 1) - 2)
        tails.add((1 << k + 1) + 2)
    for name in NAMES:
        for tail_bits in sorted(tails):
            x = other_magnitude(name, mpf(tail_bits) / mpf(2) ** 64)
            print(f"{name},0x{tail_bits:016x},{float(x).hex()}")


if __name__ == "__main__":
    if sys.argv[1:] == ["tables"]:
        write_tables()
    elif sys.argv[1:] == ["quantiles"]:
        write_quantiles()
    else:
        sys.exit(__doc__)

"""Keyed hashes and uniforms against published outputs of SplitMix64."""

import numpy as np
import pytest

from validate.numerics.keyed import keyed_hash, keyed_uniform

GOLDEN = 0x9E3779B97F4A7C15
"""SplitMix64 adds this to its state before each output (Steele, Lea and Flood, OOPSLA 2014)."""

# First outputs for seed 1234567: Rosetta Code, "Pseudo-random numbers/Splitmix64".
# Seed 0: the vectors that ports of Vigna's splitmix64.c are tested with.
PUBLISHED = {
    1234567: (
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ),
    0: (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F),
}
STATES = [
    ((seed + n * GOLDEN) % 2**64, word)
    for seed, words in PUBLISHED.items()
    for n, word in enumerate(words)
]
"""State before an output, and the output. The key is the first state; its hash, with the bits
of the first coordinate turned over, is the next state, and so on."""


def steps(*words):
    """Coordinates that turn the first word of each pair into the second: the bits that differ."""
    return [np.array([a ^ b], np.uint64) for a, b in words]


@pytest.mark.parametrize(("key", "word"), STATES)
def test_a_key_gives_the_published_output(key, word):
    """A coordinate that sets the state to 0 shows whether the key's hash was ``word``."""
    assert keyed_hash(key, *steps((word, 0))).tolist() == [PUBLISHED[0][0]]


@pytest.mark.parametrize("key", [1234567 + 2**64, 1234567 - 2**64, 1234567 + 2**70])
def test_the_lowest_64_bits_of_a_key_count(key):
    word = PUBLISHED[1234567][0]

    assert keyed_hash(key, *steps((word, 0))).tolist() == [PUBLISHED[0][0]]


@pytest.mark.parametrize(("state", "word"), STATES)
def test_a_coordinate_gives_the_published_output(state, word):
    assert keyed_hash(0, *steps((PUBLISHED[0][0], state))).tolist() == [word]


def test_coordinates_count_one_after_the_other():
    """Two coordinates, each of which leads the state to the next published output."""
    first, second, third = PUBLISHED[0]
    one, two = steps((first, GOLDEN), (second, 2 * GOLDEN % 2**64))

    assert keyed_hash(0, one, two).tolist() == [third]
    assert keyed_hash(0, two, one).tolist() != [third]


def test_a_negative_coordinate_is_read_as_twos_complement():
    """Less 2^64: the same 64 bits."""
    step = (PUBLISHED[0][0] ^ 1234567) - 2**64

    assert keyed_hash(0, np.array([step])).tolist() == [PUBLISHED[1234567][0]]


def test_coordinates_broadcast():
    found = keyed_hash(5, np.arange(3)[:, None], np.arange(2, dtype=np.int32))

    alone = [[keyed_hash(5, np.array([i]), np.array([j]))[0] for j in range(2)] for i in range(3)]
    assert found.dtype == np.uint64
    assert found.tolist() == np.array(alone).tolist()


@pytest.mark.parametrize(("state", "word"), STATES)
def test_a_uniform_is_the_upper_53_bits_and_a_half(state, word):
    """(2 bits + 1) / 2^54, which Python divides with one rounding."""
    found = keyed_uniform(0, *steps((PUBLISHED[0][0], state)))

    assert found.tolist() == [(2 * (word >> 11) + 1) / 2**54]


def test_coordinates_are_whole_numbers():
    with pytest.raises(TypeError, match="coordinate 1 has dtype float64; keyed numbers take integ"):
        keyed_hash(0, np.array([3]), np.array([0.5]))

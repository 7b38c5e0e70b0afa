# SPDX-License-Identifier: Apache-2.0
"""Pages with known contents. A page's bytes follow from its key, its version and its size alone,
so that any process can tell whether what it read is that page, whole, and of which version."""

import hashlib

import numpy

SIZES = (278, 4096, 70272, 262144, 4497408, 33554432)


def key(*parts):
    """A page's key: 64 hex digits, as engines hash a prefix of tokens."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


# Larger pages repeat themselves. A prime, so that no piece of a page fits where another belongs.
REPEATED_BYTES = 1048573
FIRST_BYTES = 64  # are nowhere else in the page


def payload(page_key, version, size):
    """The `size` bytes of that version, as a numpy array of bytes."""
    digest = hashlib.sha256(f"{page_key} {version} {size}".encode()).digest()
    seed = int.from_bytes(digest[:8], "little")
    random = numpy.random.Generator(numpy.random.SFC64(seed))
    page = numpy.resize(random.integers(0, 256, min(size, REPEATED_BYTES), numpy.uint8), size)
    page[:FIRST_BYTES] = random.integers(0, 256, FIRST_BYTES, numpy.uint8)
    return page


def is_payload(got, page_key, version, size):
    """Whether `got` (bytes-like) is exactly that version."""
    return len(got) == size and bool(
        numpy.array_equal(numpy.frombuffer(got, numpy.uint8), payload(page_key, version, size)))

# SPDX-License-Identifier: Apache-2.0
"""One operation of a client, and what was seen of it: a short word, the same for the same
behaviour. Every byte of a page that a get returns is verified here.

put:    stored; refused ERRNO; raises TYPE ERRNO
get:    hit VERSION (mixed: each file of the page is whole, but not all are of one version);
        miss; miss ERRNO (other than ENOENT); WRONG ...; raises TYPE ERRNO
exists: True; False; raises TYPE ERRNO
"""

import errno

import numpy

import page


def raised(error):
    number = getattr(error, "errno", None)
    return f"raises {type(error).__name__} {errno.errorcode.get(number, '')}".rstrip()


def put(client, key, version, size, over=False):
    """over: write over an older version, which put() of most would skip."""
    client.noted("put", own=True)
    try:
        stored = (client.write if over else client.put)(key, page.payload(key, version, size))
    except Exception as error:
        return raised(error)
    return "stored" if stored else " ".join(["refused", *client.noted("put", own=True)])


def exists(client, key):
    try:
        return str(bool(client.exists(key)))
    except Exception as error:
        return raised(error)


def get(client, key, versions, size):
    client.noted("get", own=True)
    try:
        got = client.get(key, size)
    except Exception as error:
        return raised(error)
    if got is None:
        return " ".join(["miss", *(n for n in client.noted("get", own=True) if n != "ENOENT")])
    return judge(client, got, key, versions, size)


def judge(client, got, key, versions, size):
    """Whether these bytes are the page, in one of these versions."""
    got = numpy.frombuffer(got, numpy.uint8)
    expected = [page.payload(key, version, size) for version in versions]
    for version, payload in zip(versions, expected):
        if numpy.array_equal(got, payload):
            return f"hit {version}"
    if got.size != size:
        return f"WRONG length {got.size} of {size}"
    at = 0
    for part in client.parts(size):
        if not any(numpy.array_equal(got[at:at + part], e[at:at + part]) for e in expected):
            differs = at + int(numpy.argmax(got[at:at + part] != expected[0][at:at + part]))
            return f"WRONG bytes from {differs} of {size}"
        at += part
    return "hit mixed"


def listing(client):
    """The keys that it lists; None: it never lists."""
    keys = client.list()
    return None if keys is None else frozenset(keys)

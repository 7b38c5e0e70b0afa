# SPDX-License-Identifier: Apache-2.0
"""All clients: every class of this directory that is derived from Client and has a name of its
own."""

import importlib
import os

from client import Client


def _derived(parent):
    for child in parent.__subclasses__():
        yield child
        yield from _derived(child)


def clients():
    """Their classes by name, in the order of their modules."""
    directory = os.path.dirname(os.path.abspath(__file__))
    for file in sorted(os.listdir(directory)):
        if file.endswith(".py"):
            importlib.import_module(file[:-3])
    found = {}
    for child in sorted(_derived(Client), key=lambda c: (c.__module__, c.__qualname__)):
        if "name" not in vars(child):
            continue
        if child.name in found:
            raise ValueError(f"two clients are called {child.name}")
        found[child.name] = child
    return found

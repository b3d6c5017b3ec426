"""The client storage that the suites are run with: ZEO's, or Zodium's own."""

import importlib

CLASSES = {"zeo": "ZEO.ClientStorage", "zodium": "zodium"}


class Chosen:
    """Set once, by whoever reads the command line."""

    name = "zeo"


def client_class():
    return importlib.import_module(CLASSES[Chosen.name]).ClientStorage

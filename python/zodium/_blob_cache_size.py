"""Shrink a blob cache that has grown too large, least recently used files first."""

import logging
import os
import re
import time

import zc.lockfile
from ZODB import blob as zodb_blob

logger = logging.getLogger("zodium.blobs")

is_folder_of_cache = re.compile(r"\d+$").match


def shrink(directory, target_bytes):
    """Remove files until the rest has at most `target_bytes`.

    Only one process at a time does this. Another process that finds it running leaves a
    marker file, and the running process then starts over.
    """
    attempt = os.path.join(directory, "check_size.attempt")
    lock = size_lock(directory)
    if lock is None:
        with open(attempt, "w"):
            return
    try:
        while True:
            files = files_of(directory)
            if sum(size for _, size, _ in files) > target_bytes:
                if not remove_oldest(files, target_bytes):
                    return
            elif os.path.exists(attempt):
                os.remove(attempt)
            else:
                return
    finally:
        lock.close()


def size_lock(directory):
    for pause_seconds in (1, 0):
        try:
            return zc.lockfile.LockFile(os.path.join(directory, "check_size.lock"))
        except zc.lockfile.LockError:
            time.sleep(pause_seconds)
    return None


def files_of(directory):
    """Return [(time of use, bytes, path)] of all blobs in the cache."""
    found = []
    for folder in os.scandir(directory):
        if not (is_folder_of_cache(folder.name) and folder.is_dir()):
            continue
        for entry in os.scandir(folder.path):
            if not entry.name.endswith(zodb_blob.BLOB_SUFFIX):
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            found.append((status.st_atime, status.st_size, entry.path))
    return found


def remove_oldest(files, target_bytes):
    """Remove files; return whether any could be removed."""
    left_bytes = sum(size for _, size, _ in files)
    removed = 0
    for _, size, path in sorted(files):
        if left_bytes <= target_bytes:
            break
        try:
            lock = zc.lockfile.LockFile(os.path.join(os.path.dirname(path), ".lock"))
        except zc.lockfile.LockError:
            logger.debug("%s is in use and stays", path)
            continue
        try:
            zodb_blob.remove_committed(path)
        except OSError as error:
            logger.debug("%s stays: %s", path, error)
        else:
            left_bytes -= size
            removed += 1
        finally:
            lock.close()
    return removed > 0

"""The two-phase commit of a client storage.

What is stored goes out as it comes and is not answered; the vote tells what
became of it. One transaction at a time is open on a connection, since the
protocol knows one only: another one waits in tpc_begin.
"""

import logging
import os

from ZODB.POSException import ReadOnlyError, StorageTransactionError
from ZODB.utils import tid_repr

from . import _blobs
from .exceptions import OutcomeUnknown

logger = logging.getLogger("zodium.client")

# Each attempt may meet with conflicts that the one before did not know.
VOTES_MAX = 9


class Pending:
    """A transaction between tpc_begin and its end."""

    def __init__(self, native):
        self.native = native
        # Files that are ours until they are the cache's: [(oid, path)].
        self.blobs = []
        # The oids whose data are not those that the application stored.
        self.resolved = set()


class Commits:
    """What a storage does between tpc_begin and tpc_finish or tpc_abort."""

    def tpc_begin(self, txn, tid=None, status=" "):
        if self.is_read_only():
            raise ReadOnlyError()
        if pending_of(self, txn) is not None:
            raise StorageTransactionError("Duplicate tpc_begin calls for same transaction")
        native = self._client.begin(txn.user, txn.description, txn.extension, tid, status)
        txn.set_data(self, Pending(native))

    def store(self, oid, serial, data, version, txn):
        assert not version
        self._checked(txn, "store").native.store(oid, serial, data)

    def storeBlob(self, oid, serial, data, blobfilename, version, txn):
        assert not version
        pending = self._checked(txn, "storeBlob")
        # At once: whether there is room for it is better known now than at the end.
        path = self._blob_files().take(oid, serial, blobfilename)
        if self.shared_blob_dir:
            try:
                pending.native.store_shared_blob(oid, serial, data, os.path.basename(path))
            except BaseException:
                # The server, which did not hear of it, does not remove it.
                _blobs.discard(path)
                raise
        else:
            pending.blobs.append((oid, path))
            pending.native.store_blob(oid, serial, data, path)

    def deleteObject(self, oid, serial, txn):
        self._checked(txn, "deleteObject").native.delete(oid, serial)

    def checkCurrentSerialInTransaction(self, oid, serial, transaction):
        pending = self._checked(transaction, "checkCurrentSerialInTransaction")
        pending.native.check_current(oid, serial)

    def undo(self, trans_id, txn):
        self._checked(txn, "undo").native.undo(trans_id)

    def restore(self, oid, serial, data, version, prev_txn, transaction):
        """Write a revision that another database committed, under its own tid."""
        assert not version
        self._checked(transaction, "restore").native.restore(oid, serial, data, prev_txn)

    def tpc_vote(self, txn):
        """The oids whose data are not those that were stored, or None."""
        pending = self._checked(txn, "tpc_vote")
        for _ in range(VOTES_MAX):
            changed, conflicts = pending.native.vote()
            pending.resolved.update(changed)
            if not conflicts:
                break
            self._resolve(pending, conflicts)
        return list(pending.resolved) or None

    def tpc_finish(self, txn, f=lambda tid: None):
        """Commit; `f` is called with the tid before anybody here sees its objects.

        Once the server has committed, no error is raised: an application would take the
        transaction for failed. What goes wrong on this side is logged, and made good.
        """
        pending = self._checked(txn, "tpc_finish")
        try:
            tid, failure = pending.native.finish(f)
            self._after_commit(pending, tid, failure)
        finally:
            self._end(txn, pending)
        return tid

    def _after_commit(self, pending, tid, failure):
        """Keep the blobs that were sent; `failure` is an exception of the function that is told."""
        try:
            if failure is not None:
                # Connections of this process may have missed the commit: as after a lost
                # connection they load all objects anew.
                self.invalidateCache()
            if pending.blobs:
                self._blobs.committed(pending.blobs, tid)
            if failure is not None:
                raise failure
        except Exception:
            logger.exception(
                "%s: transaction %s is committed, but the function that tells the connections of"
                " this process failed; they load all objects anew",
                self.__name__,
                tid_repr(tid),
            )
        except BaseException as error:
            # It stops the process, or was raised by a signal's handler: `outcome` tells the rest.
            error.__cause__ = committed_as(tid)
            raise

    def tpc_abort(self, txn, timeout=None):
        pending = pending_of(self, txn)
        if pending is None:
            return
        try:
            pending.native.abort()
        finally:
            self._end(txn, pending)

    def tpc_transaction(self):
        """Several transactions can be under way: there is none that is the only one."""
        return None

    def _resolve(self, pending, conflicts):
        """Store what ZODB's own classes make of conflicts; ConflictError if one cannot be."""
        for oid, committed, stored_upon, data in conflicts:
            resolved = self.tryToResolveConflict(oid, committed, stored_upon, data)
            pending.native.store(oid, committed, resolved)
            pending.resolved.add(oid)

    def _checked(self, txn, method):
        """What is known of the transaction; an exception unless it is open."""
        pending = pending_of(self, txn)
        if pending is None:
            if self.is_read_only():
                raise ReadOnlyError()
            raise StorageTransactionError("Transaction not committing", method, txn)
        return pending

    def _end(self, txn, pending):
        txn.set_data(self, None)
        pending.native = None
        for _, path in pending.blobs:
            _blobs.discard(path)


def committed_as(tid):
    """What an exception is raised from that comes after the commit."""
    known = OutcomeUnknown(f"the wait ended after the commit of transaction {tid_repr(tid)}")
    known.committed = tid
    return known


def pending_of(storage, txn):
    """What a storage knows of a transaction, or None."""
    try:
        return txn.data(storage)
    except KeyError:
        return None
    except AttributeError:
        # A description of a transaction that is copied: it holds no data, so they are lent to it.
        lent = {}
        txn.data = lent.__getitem__
        txn.set_data = lent.__setitem__
        return None

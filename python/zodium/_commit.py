"""The two-phase commit of a client storage.

Stores are sent as they come and have no reply; the vote reports their results. One
transaction at a time is open on a connection, because the protocol allows only one. Others
wait in tpc_begin.
"""

import logging
import os

from ZODB.POSException import ReadOnlyError, StorageTransactionError
from ZODB.utils import tid_repr

from . import _blobs
from ._signals import is_from_handler
from .exceptions import OutcomeUnknown

logger = logging.getLogger("zodium.client")

# Each attempt may find conflicts with commits after the previous one.
VOTES_MAX = 9


class Pending:
    """A transaction between tpc_begin and its end."""

    def __init__(self, native):
        self.native = native
        # A forked child must not remove the files of its parent's transaction.
        self.process = os.getpid()
        # Files that belong to us until they are in the cache: [(oid, path)].
        self.blobs = []
        # The oids whose data are not those that the application stored.
        self.resolved = set()
        # Set once the server has committed.
        self.tid = None


class Commits:
    """The methods of a storage from tpc_begin to tpc_finish or tpc_abort."""

    def tpc_begin(self, txn, tid=None, status=" "):
        if self.is_read_only():
            raise ReadOnlyError()
        if pending_of(self, txn) is not None:
            raise StorageTransactionError("Duplicate tpc_begin calls for same transaction")
        native = self._client.begin(txn.user, txn.description, self._extension(txn), tid, status)
        txn.set_data(self, Pending(native))

    def _extension(self, txn):
        """Return the extension of a transaction as the native client takes it."""
        return txn.extension

    def store(self, oid, serial, data, version, txn):
        assert not version
        self._checked(txn, "store").native.store(oid, serial, data)

    def storeBlob(self, oid, serial, data, blobfilename, version, txn):
        assert not version
        pending = self._checked(txn, "storeBlob")
        # Moved at once: an error, such as a full disk, is better found now than at the end.
        path = self._blob_files().take(oid, serial, blobfilename)
        if self.shared_blob_dir:
            try:
                pending.native.store_shared_blob(oid, serial, data, os.path.basename(path))
            except BaseException:
                # The server has not heard of it, so it will not remove it.
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
        """Copy a revision committed in another database, with its tid."""
        assert not version
        self._checked(transaction, "restore").native.restore(oid, serial, data, prev_txn)

    def tpc_vote(self, txn):
        """Vote; return the oids whose data the server has changed, or None."""
        pending = self._checked(txn, "tpc_vote")
        for _ in range(VOTES_MAX):
            changed, conflicts = pending.native.vote()
            pending.resolved.update(changed)
            if not conflicts:
                break
            self._resolve(pending, conflicts)
        return list(pending.resolved) or None

    def tpc_finish(self, txn, f=lambda tid: None):
        """Commit; `f` is called with the tid before other threads see the new objects.

        After the server has committed, no error is raised: the application would treat the
        transaction as failed. Local failures are logged and repaired. An exception of a signal
        handler goes through, and `outcome` tells the tid for it.
        """
        pending = self._checked(txn, "tpc_finish")

        def tell(tid):
            pending.tid = tid
            f(tid)

        try:
            try:
                # If `f` raises, connections of this process may have missed the commit. As after a
                # lost connection, they load all objects again. `tell` may not have noted the tid: a
                # signal handler raises at its start too.
                pending.tid, failure, raised = pending.native.finish(tell, self.invalidateCache)
                self._after_commit(pending, failure, raised)
            finally:
                self._end(txn, pending)
        except BaseException as error:
            # It stops the process, or a signal handler has raised it, here or during the wait.
            if pending.tid is not None:
                error.__cause__ = committed_as(pending.tid)
            raise
        return pending.tid

    def _after_commit(self, pending, failure, raised):
        """Add the blobs to the cache.

        `failure` is an exception of `f`, and `raised` one of a signal handler during the wait.
        """
        try:
            if pending.blobs:
                self._blobs.committed(pending.blobs, pending.tid)
            if failure is not None:
                raise failure
        except Exception as error:
            if is_from_handler(error.__traceback__):
                raise
            logger.exception(
                "%s: transaction %s is committed, but the function that tells the connections of"
                " this process failed; they load all objects anew",
                self.__name__,
                tid_repr(pending.tid),
            )
        if raised is not None:
            raise raised

    def tpc_abort(self, txn, timeout=None):
        pending = pending_of(self, txn)
        if pending is None:
            return
        try:
            pending.native.abort()
        finally:
            self._end(txn, pending)

    def tpc_transaction(self):
        """Return None: several transactions can be open."""
        return None

    def _resolve(self, pending, conflicts):
        """Resolve conflicts with ZODB's own code and store the results; may raise ConflictError."""
        for oid, committed, stored_upon, data in conflicts:
            resolved = self.tryToResolveConflict(oid, committed, stored_upon, data)
            pending.native.store(oid, committed, resolved)
            pending.resolved.add(oid)

    def _checked(self, txn, method):
        """Return the state of an open transaction; raise an exception if it is not open."""
        pending = pending_of(self, txn)
        if pending is None:
            if self.is_read_only():
                raise ReadOnlyError()
            raise StorageTransactionError("Transaction not committing", method, txn)
        return pending

    def _end(self, txn, pending):
        txn.set_data(self, None)
        pending.native = None
        if pending.process == os.getpid():
            for _, path in pending.blobs:
                _blobs.discard(path)


def committed_as(tid):
    """Return the cause of an exception that is raised after the commit."""
    known = OutcomeUnknown(f"the wait ended after the commit of transaction {tid_repr(tid)}")
    known.committed = tid
    return known


def pending_of(storage, txn):
    """Return the state of a transaction, or None."""
    try:
        return txn.data(storage)
    except KeyError:
        return None
    except AttributeError:
        # A description of a copied transaction cannot hold data, so they are kept here.
        lent = {}
        txn.data = lent.__getitem__
        txn.set_data = lent.__setitem__
        return None

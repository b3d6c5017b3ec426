//! A worker's inbox: other threads append items, and the worker takes them in order.
//!
//! Waking a sleeping worker costs a system call and two context switches, often more than the item
//! itself. A worker that was woken and has not run since is not woken again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

/// The end that items are taken from. It belongs to one worker.
pub struct Inbox<T> {
    shared: Arc<Shared<T>>,
    /// Items that were taken from the queue together and not yet handled.
    taken: RefCell<VecDeque<T>>,
}

/// The end that items are appended to, by any thread.
pub struct InboxSender<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    waker: AtomicWaker,
    /// Whether the worker's task was woken and has not run since: one wake-up is enough.
    is_woken: AtomicBool,
}

/// Creates an inbox.
pub fn inbox<T>() -> (InboxSender<T>, Inbox<T>) {
    let (queue, waker) = (Mutex::new(VecDeque::new()), AtomicWaker::new());
    let shared = Arc::new(Shared { queue, waker, is_woken: AtomicBool::new(false) });
    (InboxSender { shared: Arc::clone(&shared) }, Inbox { shared, taken: RefCell::default() })
}

impl<T> InboxSender<T> {
    /// Appends an item and wakes the worker.
    pub fn send(&self, item: T) {
        self.shared.queue.lock().push_back(item);
        if !self.shared.is_woken.swap(true, Ordering::AcqRel) {
            self.shared.waker.wake();
        }
    }
}

impl<T> Inbox<T> {
    /// Takes the next item, if there is one.
    pub fn take(&self) -> Option<T> {
        let mut taken = self.taken.borrow_mut();
        if taken.is_empty() {
            std::mem::swap(&mut *self.shared.queue.lock(), &mut taken);
        }
        taken.pop_front()
    }

    /// The next item, as soon as there is one. Only one task may wait for it.
    pub async fn next(&self) -> T {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<T> {
        self.shared.waker.register(context.waker());
        // Before the queue is looked at: an item that comes later wakes this task again.
        self.shared.is_woken.store(false, Ordering::Release);
        match self.take() {
            Some(item) => Poll::Ready(item),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn items_come_in_order_and_wake_the_worker_once() {
        let (sender, inbox) = inbox();
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let poll = || inbox.poll_next(&mut Context::from_waker(&waker));
        let woken = || wakes.0.load(Ordering::Relaxed);
        assert_eq!(poll(), Poll::Pending);
        sender.send(1);
        sender.send(2);
        assert_eq!(woken(), 1);
        assert_eq!([poll(), poll(), poll()], [Poll::Ready(1), Poll::Ready(2), Poll::Pending]);
        sender.send(3);
        assert_eq!(woken(), 2);
        assert_eq!((inbox.take(), poll()), (Some(3), Poll::Pending));
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        const ITEMS: u32 = 100_000;
        let (sender, inbox) = inbox();
        let sending = std::thread::spawn(move || (0..ITEMS).for_each(|item| sender.send(item)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for item in 0..ITEMS {
                assert_eq!(inbox.next().await, item);
            }
        });
        sending.join().unwrap();
    }
}

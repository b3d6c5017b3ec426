//! A worker's inbox: other threads append items, and the worker takes them in order.
//!
//! Waking a sleeping worker costs a system call and two context switches, often more than the item
//! itself. So a sender may say that an item can wait: the worker then takes it with the next item
//! that wakes it, or when it looks into the inbox for another reason. A worker that has not looked
//! for the inbox's patience is woken at once: it serves clients that do nothing else.
//!
//! Invariant: an item that waits is taken after the patience at the latest, if its sender calls
//! [`InboxSender::remind`] when that says so.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

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
    queue: Mutex<Queue<T>>,
    /// How long an item may wait that does not wake the worker.
    patience: Duration,
    waker: AtomicWaker,
    /// Whether the worker's task was woken and has not run since: one wake-up is enough.
    is_woken: AtomicBool,
}

struct Queue<T> {
    items: VecDeque<T>,
    /// When the worker last took the items; `None` if it never did.
    taken: Option<Instant>,
    /// Since when an item waits for which the worker was not woken.
    waiting: Option<Instant>,
}

/// Creates an inbox, in which items may wait for `patience` that do not wake the worker.
pub fn inbox<T>(patience: Duration) -> (InboxSender<T>, Inbox<T>) {
    let queue = Queue { items: VecDeque::new(), taken: None, waiting: None };
    let shared = Arc::new(Shared {
        queue: Mutex::new(queue),
        patience,
        waker: AtomicWaker::new(),
        is_woken: AtomicBool::new(false),
    });
    (InboxSender { shared: Arc::clone(&shared) }, Inbox { shared, taken: RefCell::default() })
}

impl<T> InboxSender<T> {
    /// Appends an item and wakes the worker.
    pub fn send(&self, item: T) {
        let mut queue = self.shared.queue.lock();
        queue.items.push_back(item);
        queue.waiting = None;
        drop(queue);
        self.shared.wake();
    }

    /// Appends an item that may wait; wakes the worker only if it has not looked into the inbox for
    /// the inbox's patience. Returns whether the item waits, so that the sender has to
    /// [remind](InboxSender::remind) the worker.
    pub fn send_patiently(&self, item: T) -> bool {
        let patience = self.shared.patience;
        let mut queue = self.shared.queue.lock();
        queue.items.push_back(item);
        let now = Instant::now();
        let is_awake = queue.taken.is_some_and(|taken| now.duration_since(taken) < patience);
        // While an item waits, the worker is not woken before its time.
        let waits = is_awake || queue.waiting.is_some();
        if waits {
            queue.waiting.get_or_insert(now);
        }
        drop(queue);
        if !waits {
            self.shared.wake();
        }
        waits
    }

    /// Wakes the worker if an item has waited for the inbox's patience. Returns the time until the
    /// next call is due; `None` if no item waits.
    pub fn remind(&self) -> Option<Duration> {
        let mut queue = self.shared.queue.lock();
        let left = self.shared.patience.saturating_sub(queue.waiting?.elapsed());
        if left.is_zero() {
            queue.waiting = None;
            drop(queue);
            self.shared.wake();
            return None;
        }
        Some(left)
    }
}

impl<T> Shared<T> {
    fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }
}

impl<T> Inbox<T> {
    /// Takes the next item, if there is one.
    pub fn take(&self) -> Option<T> {
        let mut taken = self.taken.borrow_mut();
        if taken.is_empty() {
            let mut queue = self.shared.queue.lock();
            std::mem::swap(&mut queue.items, &mut taken);
            queue.waiting = None;
            queue.taken = Some(Instant::now());
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

    const PATIENCE: Duration = Duration::from_secs(3600);

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An inbox whose task waits for the next item.
    struct Waiting {
        sender: InboxSender<u32>,
        inbox: Inbox<u32>,
        wakes: Arc<Wakes>,
    }

    impl Waiting {
        fn new(patience: Duration) -> Waiting {
            let (sender, inbox) = inbox(patience);
            let waiting = Waiting { sender, inbox, wakes: Arc::default() };
            assert_eq!(waiting.poll(), None);
            waiting
        }

        fn poll(&self) -> Option<u32> {
            let waker = Waker::from(Arc::clone(&self.wakes));
            match self.inbox.poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(item) => Some(item),
                Poll::Pending => None,
            }
        }

        fn wakes(&self) -> usize {
            self.wakes.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn items_come_in_order_and_wake_the_worker_once() {
        let waiting = Waiting::new(PATIENCE);
        waiting.sender.send(1);
        waiting.sender.send(2);
        assert!(waiting.sender.send_patiently(3));
        assert_eq!(waiting.wakes(), 1);
        assert_eq!([waiting.poll(), waiting.poll(), waiting.poll()], [Some(1), Some(2), Some(3)]);
        assert_eq!(waiting.poll(), None);
        waiting.sender.send(4);
        assert_eq!(waiting.wakes(), 2);
        assert_eq!(waiting.poll(), Some(4));
    }

    #[test]
    fn a_worker_that_has_just_looked_is_not_woken_for_an_item_that_can_wait() {
        let waiting = Waiting::new(PATIENCE);
        assert!(waiting.sender.send_patiently(1));
        assert_eq!(waiting.wakes(), 0);
        let left = waiting.sender.remind().unwrap();
        assert!(left <= PATIENCE && left > PATIENCE / 2);
        // An item that cannot wait takes it along.
        waiting.sender.send(2);
        assert_eq!((waiting.wakes(), waiting.sender.remind()), (1, None));
        assert_eq!([waiting.poll(), waiting.poll()], [Some(1), Some(2)]);
    }

    #[test]
    fn an_item_that_was_taken_without_a_wake_up_waits_no_longer() {
        let waiting = Waiting::new(PATIENCE);
        assert!(waiting.sender.send_patiently(1));
        assert_eq!(waiting.inbox.take(), Some(1));
        assert_eq!((waiting.sender.remind(), waiting.wakes()), (None, 0));
    }

    #[test]
    fn an_item_that_has_waited_for_long_wakes_the_worker() {
        let patience = Duration::from_millis(20);
        let waiting = Waiting::new(patience);
        // On a busy machine it is not always sent within the patience.
        while !waiting.sender.send_patiently(1) {
            while waiting.poll().is_some() {}
        }
        let before = waiting.wakes();
        while waiting.sender.remind().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(waiting.wakes(), before + 1);
        assert_eq!(waiting.poll(), Some(1));
    }

    #[test]
    fn a_worker_that_has_not_looked_for_long_is_woken_at_once() {
        let patience = Duration::from_millis(1);
        let waiting = Waiting::new(patience);
        std::thread::sleep(2 * patience);
        assert!(!waiting.sender.send_patiently(1));
        assert_eq!((waiting.wakes(), waiting.sender.remind()), (1, None));
        let impatient = Waiting::new(Duration::ZERO);
        assert!(!impatient.sender.send_patiently(1));
        assert_eq!((impatient.wakes(), impatient.sender.remind()), (1, None));
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        const ITEMS: u32 = 100_000;
        let (sender, inbox) = inbox(Duration::from_micros(50));
        let sending = std::thread::spawn(move || {
            for item in 0..ITEMS {
                match item % 3 {
                    0 => sender.send(item),
                    _ => {
                        sender.send_patiently(item);
                    }
                }
                sender.remind();
            }
            while sender.remind().is_some() {
                std::thread::yield_now();
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for item in 0..ITEMS {
                assert_eq!(inbox.next().await, item);
            }
        });
        sending.join().unwrap();
    }
}

//! How long a thread has had something to do, read by another one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The runnable time of a thread: on a processor, or waiting for one. All clones are of the same
/// thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadTime {
    /// What the system tells of the thread; `None` if it does not.
    statistics: Arc<OnceLock<Option<File>>>,
}

impl ThreadTime {
    /// Whether the system tells the times of threads: Linux does, if so configured.
    pub(crate) fn is_known() -> bool {
        own_statistics().is_some()
    }

    /// From now on this is the time of the calling thread.
    pub(crate) fn is_of_this_thread(&self) {
        self.statistics.get_or_init(own_statistics);
    }

    /// The runnable time so far; `None` if it is not known, and before the thread has begun.
    pub(crate) fn so_far(&self) -> Option<Duration> {
        let statistics = self.statistics.get()?.as_ref()?;
        let mut text = [0; 64];
        let length = statistics.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        // Nanoseconds on a processor, nanoseconds of waiting for one, and the number of turns.
        let mut numbers = text.split(' ').map(|number| number.parse().ok());
        let (running, waiting): (u64, u64) = (numbers.next()??, numbers.next()??);
        Some(Duration::from_nanos(running + waiting))
    }
}

fn own_statistics() -> Option<File> {
    // Opened by the thread itself, it goes on to be that thread's file.
    File::open("/proc/thread-self/schedstat").ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_time_is_that_of_the_other_thread() {
        if !ThreadTime::is_known() {
            return;
        }
        let time = ThreadTime::default();
        assert_eq!(time.so_far(), None);
        let (of_thread, (begun, begins), (end, ends)) = (time.clone(), channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            of_thread.is_of_this_thread();
            let began = Instant::now();
            while of_thread.so_far().unwrap() < Duration::from_millis(30) {
                assert!(began.elapsed() < Duration::from_secs(60));
            }
            begun.send(()).unwrap();
            ends.recv().unwrap_err();
        });
        begins.recv().unwrap();
        let worked = time.so_far().unwrap();
        assert!(worked >= Duration::from_millis(30), "{worked:?}");
        // It waits for the channel soon, and the time stands still.
        let began = Instant::now();
        let mut before = worked;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let now = time.so_far().unwrap();
            if now == before {
                break;
            }
            before = now;
            assert!(began.elapsed() < Duration::from_secs(60), "{now:?}");
        }
        drop(end);
        thread.join().unwrap();
    }
}

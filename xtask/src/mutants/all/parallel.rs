//! Several jobs side by side.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does the same to all items, `jobs` of them at a time. The first error ends it.
pub(super) fn in_parallel<T: Sync, R: Send>(
    jobs: NonZero<usize>,
    items: &[T],
    each: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return Ok(()) };
            let result = each(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.get()).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_and_an_error_ends_it() {
        let jobs = NonZero::new(3).unwrap();
        let items: Vec<u32> = (0..100).collect();
        let double = |number: &u32| Ok(number * 2);
        let doubled = in_parallel(jobs, &items, double).unwrap();
        assert_eq!(doubled, items.iter().map(|number| number * 2).collect::<Vec<_>>());
        let wrong = |number: &u32| {
            ensure!(*number != 50, "wrong");
            Ok(())
        };
        assert!(in_parallel(jobs, &items, wrong).is_err());
    }
}

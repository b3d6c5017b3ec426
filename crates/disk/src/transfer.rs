//! Retries of short and interrupted reads and writes.
//!
//! A signal or a network file system can end a call early without an error. These functions
//! continue where the call stopped, so callers see whole transfers.

use std::io;
use std::thread;
use std::time::Duration;

/// Pause before a call that would block is retried.
const PAUSE: Duration = Duration::from_millis(1);
/// Most pauses in a row, a second in all. A file has no other way to say that it will never be
/// ready.
const PAUSES_MAX: u32 = 1000;

/// Writes all bytes, with as many calls of `write(bytes, position)` as it takes.
pub(crate) fn write_all(
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
    mut bytes: &[u8],
    mut position: u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = until_answered(|| write(bytes, position))?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[count..];
        position += count as u64;
    }
    Ok(())
}

/// Repeats a call while it is interrupted or would block.
pub(crate) fn until_answered(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let mut pauses = 0;
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && pauses < PAUSES_MAX => {
                pauses += 1;
                thread::sleep(PAUSE);
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes into a file, `count_max` bytes a call; every other call first fails with one of these
    /// errors.
    fn write_in_pieces(count_max: usize, errors: &[io::ErrorKind]) -> (io::Result<()>, Vec<u8>) {
        let (mut file, mut calls) = (vec![0; 3], 0);
        let write = |bytes: &[u8], position: u64| {
            calls += 1;
            if calls % 2 == 1
                && let Some(error) = errors.get(calls / 2)
            {
                return Err((*error).into());
            }
            let count = bytes.len().min(count_max);
            assert_eq!(position, file.len() as u64, "each piece goes behind the one before");
            file.extend_from_slice(&bytes[..count]);
            Ok(count)
        };
        (write_all(write, b"a transaction", 3), file)
    }

    #[test]
    fn short_and_interrupted_writes_go_on_where_they_stopped() {
        use io::ErrorKind::{Interrupted, WouldBlock};
        for count_max in 1..20 {
            for errors in [&[][..], &[Interrupted], &[WouldBlock], &[WouldBlock, Interrupted]] {
                let (written, file) = write_in_pieces(count_max, errors);
                written.unwrap();
                assert_eq!(file, b"\0\0\0a transaction", "{count_max} bytes, {errors:?}");
            }
        }
    }

    #[test]
    fn an_error_ends_a_write_in_its_midst() {
        let (written, file) = write_in_pieces(5, &[io::ErrorKind::StorageFull]);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.len(), 3);
        let (written, _) = write_in_pieces(0, &[]);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn a_transfer_that_never_goes_on_is_given_up() {
        let mut calls = 0;
        let answer = until_answered(|| {
            calls += 1;
            Err(io::ErrorKind::WouldBlock.into())
        });
        assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(calls, PAUSES_MAX + 1);
    }
}

//! Standard output and standard error, whose readers may end before the program.
//!
//! Key decision: a failed write never panics, as `println!` and `eprintln!` do. A server would end
//! because of its greeting.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};
use tracing::info;

/// Prints a text on standard output at once. Returns whether a program still reads it: a closed
/// pipe is no error.
pub(crate) fn print(text: &str) -> Result<bool> {
    print_to(&mut io::stdout().lock(), text)
}

/// Prints the greeting of a server, which serves on if that fails.
pub(crate) fn greet(text: &str) {
    if let Err(error) = print(text) {
        info!("no greeting: {error:#}");
    }
}

fn print_to(output: &mut impl Write, text: &str) -> Result<bool> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Prints a line on standard error. A failure is ignored: there is no other place to tell it.
pub(crate) fn write_complaint(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// As `eprintln!`, but never panics.
macro_rules! complain {
    ($($text:tt)*) => {
        $crate::streams::write_complaint(format_args!($($text)*))
    };
}
pub(crate) use complain;

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_device_is_one() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(print_to(&mut writer, "read\n").unwrap());
        drop(reader);
        assert!(!print_to(&mut writer, "not read\n").unwrap());
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let refused = print_to(&mut full, "lost\n").unwrap_err();
        assert_eq!(refused.to_string(), "cannot write to standard output");
    }
}

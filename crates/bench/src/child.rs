//! Programs that run to their end within a measurement. A signal to the benchmark ends them too.

use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::interrupt::Interrupt;

/// Interval between looks at a program whose output is waited for. They are few, so that they take
/// nothing from what is measured.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Waits for a process, calling `look` every `interval`. Kills it after a signal, which is an error
/// then.
pub(crate) fn wait_for(
    child: &mut Child,
    interrupt: &Interrupt,
    interval: Duration,
    mut look: impl FnMut(&Child),
) -> Result<()> {
    while child.try_wait()?.is_none() {
        look(child);
        if let Err(error) = interrupt.sleep(interval) {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
    }
    Ok(())
}

/// Runs a program, and returns what it has printed.
pub(crate) fn output(command: &mut Command, interrupt: &Interrupt) -> Result<Output> {
    let name = command.get_program().to_owned();
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.with_context(|| format!("cannot start {}", name.display()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        // Both at once: a program whose pipe is full waits until it is read.
        let stdout = scope.spawn(|| read(stdout));
        let stderr = scope.spawn(|| read(stderr));
        wait_for(&mut child, interrupt, LOOK_INTERVAL, |_| ())?;
        let joined = |read: thread::Result<io::Result<Vec<u8>>>| {
            read.unwrap_or_else(|_| Err(io::Error::other("the reader of a pipe panicked")))
        };
        let (stdout, stderr) = (joined(stdout.join())?, joined(stderr.join())?);
        Ok(Output { status: child.wait()?, stdout, stderr })
    })
}

fn read(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_pipe_holds_is_read_of_both() {
        let interrupt = Interrupt::listen().unwrap();
        let script = "head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero; exit 3";
        let output = output(Command::new("sh").args(["-c", script]), &interrupt).unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (200_000, 300_000));
        assert_eq!(output.status.code(), Some(3));
    }
}

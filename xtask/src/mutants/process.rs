//! A command with a limit of time, in a process group of its own.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};

/// How often a running command is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A test may take so many times as long as without a mutation, on a machine that has become busy.
const SLOWDOWN_MAX: u32 = 10;
/// A test may take this on top.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a command ended.
pub(super) enum End {
    Exited(ExitStatus),
    /// The caller knew enough.
    Stopped,
    TimedOut,
}

/// The longest time for tests that usually take this long.
pub(super) fn time_max(usual: Duration) -> Duration {
    usual * SLOWDOWN_MAX + PATIENCE
}

/// Runs a command, until it ends or takes too long, or `is_enough` says so. Processes that the
/// command leaves behind are ended too.
pub(super) fn run(
    command: &mut Command,
    time_max: Duration,
    is_enough: impl Fn() -> bool,
) -> anyhow::Result<End> {
    let name = format!("cannot start {}", command.get_program().display());
    // With a command go the tests that it started.
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn().context(name)?;
    let began = Instant::now();
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break End::Exited(status);
        }
        if is_enough() {
            break End::Stopped;
        }
        if began.elapsed() >= time_max {
            break End::TimedOut;
        }
        thread::sleep(POLL_INTERVAL);
    };
    end_group(&mut child)?;
    Ok(end)
}

fn end_group(child: &mut Child) -> anyhow::Result<()> {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Of a command that has ended, the group is usually gone.
        match kill_process_group(group, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error).context("cannot end a test"),
        }
    }
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_ends_by_itself_or_by_force() {
        let minute = Duration::from_secs(60);
        let end = run(&mut shell("exit 3"), minute, || false).unwrap();
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)));
        let end = run(&mut shell("sleep 60"), Duration::ZERO, || false).unwrap();
        assert!(matches!(end, End::TimedOut));
        let end = run(&mut shell("sleep 60"), minute, || true).unwrap();
        assert!(matches!(end, End::Stopped));
    }

    #[test]
    fn processes_that_a_command_leaves_behind_are_ended() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = shell("sleep 600 &");
        command.stdout(writer);
        let began = Instant::now();
        run(&mut command, Duration::from_secs(600), || false).unwrap();
        drop(command);
        // The pipe is open for as long as one of them has it.
        reader.read_to_end(&mut Vec::new()).unwrap();
        assert!(began.elapsed() < Duration::from_secs(600));
    }
}

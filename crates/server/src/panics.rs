//! A panic in any thread is logged and ends the process.
//!
//! Half a server is worse than a restarted one. The hook itself ends the process, whatever the
//! build profile says: a runtime would catch the panic of a task and continue.

use std::panic::PanicHookInfo;
use std::thread;

use tracing::error;

/// Makes a panic end the process by SIGABRT, with a log line that names the thread and the place.
pub(crate) fn end_the_process() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // First on standard error, which takes none of our locks: the log itself may have
        // panicked. This also prints a backtrace if RUST_BACKTRACE is set.
        print(panic);
        tell(panic);
        std::process::abort();
    }));
}

fn tell(panic: &PanicHookInfo<'_>) {
    let current = thread::current();
    let thread = current.name().unwrap_or("(without a name)");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let fault = panic.payload_as_str().unwrap_or("(no text)");
    error!(
        thread,
        place,
        fault,
        "a bug in the server ends it here; all acknowledged transactions are in the file. Restart \
         it, and please report this line"
    );
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use zodium_configuration::{LogDestination, LogFormat, LogOptions};
    use zodium_disk::{FaultyDisk, MemoryDisk, Operation, SystemClock};
    use zodium_engine::{Check, Config, Database, Mailbox, Notice, Transaction, VoteStart};
    use zodium_filestorage::{FileStorage, OpenOptions};
    use zodium_monitor::{Health, Listener, Messages, Monitor, Promise, Snapshot, Source};
    use zodium_net::{WorkerOptions, Workers};
    use zodium_storage::Access;
    use zodium_types::{Address, Oid, Tid, TransactionMetadata, TransactionStatus};
    use zodium_zeo_server::ZeoService;

    use super::end_the_process;

    const WHICH: &str = "ZODIUM_TEST_PANIC";
    const LOG: &str = "ZODIUM_TEST_LOG";
    const SIGABRT: i32 = 6;
    /// A process that continues after a panic is detected by then.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_panic_in_any_thread_ends_the_process_and_names_thread_and_place() {
        let threads = [
            ("worker", "worker-0"),
            ("job", "job-of-worker-0"),
            ("log writer", "log-writer"),
            ("blob cleaner", "blob-cleaner"),
            ("monitor", "monitor"),
            ("thread without a name", "(without a name)"),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (which, thread) in threads {
            let log = folder.path().join(which);
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "panics::tests::child", "--nocapture"])
                .env(WHICH, which)
                .env(LOG, &log)
                .output()
                .unwrap();
            assert_eq!(child.status.signal(), Some(SIGABRT), "{which}: {child:?}");
            let told = std::fs::read_to_string(&log).unwrap();
            assert!(told.contains(&format!("\"thread\":\"{thread}\"")), "{which}: {told}");
            assert!(told.contains("src/panics.rs:"), "{which}: {told}");
            assert!(told.contains("a fault in a test"), "{which}: {told}");
            assert_eq!(told.matches("\"ERROR\"").count(), 1, "{which}: {told}");
            let printed = String::from_utf8_lossy(&child.stderr).into_owned();
            assert!(printed.contains("a fault in a test"), "{which}: {printed}");
        }
    }

    /// The process of the test above; does nothing when run with the other tests.
    #[test]
    fn child() {
        let (Ok(which), Ok(log)) = (std::env::var(WHICH), std::env::var(LOG)) else { return };
        let options = LogOptions {
            destinations: vec![LogDestination::File(PathBuf::from(log))],
            format: LogFormat::Json,
            level: "info".to_owned(),
        };
        crate::logging::start(&options).unwrap();
        end_the_process();
        match which.as_str() {
            "worker" => start_worker(fault),
            "job" => start_worker(|| {
                tokio::task::spawn_blocking(fault);
            }),
            "log writer" => commit(),
            "blob cleaner" => drop_blob(),
            "monitor" => ask_monitor(),
            _ => drop(std::thread::spawn(fault)),
        }
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn fault() {
        panic!("a fault in a test");
    }

    /// Runs on a worker of the server, within its runtime, and stays there.
    fn start_worker(what: fn()) {
        let make = move |_| -> ZeoService {
            what();
            std::thread::sleep(PATIENCE);
            std::process::exit(0)
        };
        let options = WorkerOptions { count: 1, ..WorkerOptions::default() };
        drop(Workers::start(options, make).unwrap());
    }

    struct NoMailbox;

    impl Mailbox for NoMailbox {
        fn post(&self, _: Notice) {}
    }

    fn open(disk: FaultyDisk) -> FileStorage {
        let options = OpenOptions {
            blob_directory: Some("blobs".into()),
            ..OpenOptions::new(Path::new("Data.fs"))
        };
        FileStorage::open(Arc::new(disk), &options).unwrap()
    }

    /// Commits on a disk that panics in the log writer's sync.
    fn commit() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let config = Config {
            invalidation_queue_size: 1,
            pack_keep_old: false,
            reopening: None,
            ..Config::default()
        };
        let clock = Arc::new(SystemClock::new());
        let storage = Database::start(Arc::new(open(disk.clone())), clock, &config).unwrap();
        let metadata = TransactionMetadata::default();
        let mut transaction = Transaction::new(metadata, None, TransactionStatus::Normal).unwrap();
        transaction.store(Oid(1), Tid::ZERO, "data".into());
        let mailbox: Arc<dyn Mailbox> = Arc::new(NoMailbox);
        let (number, start) = storage.begin_vote(&transaction, &mailbox).unwrap();
        assert_eq!(start, VoteStart::Granted);
        let voted = storage.check(number, &transaction, Access::Blocking).unwrap();
        let Check::Voted(voted) = voted else { unreachable!("there are no other transactions") };
        disk.before_next(Operation::Sync, fault);
        storage.finish(number, voted).unwrap();
    }

    fn drop_blob() {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let storage = open(disk.clone());
        let blob = storage.blobs().unwrap().temporary().unwrap();
        disk.before_next(Operation::Folder, fault);
        drop(blob);
    }

    struct Faulty;

    impl Source for Faulty {
        fn health(&self) -> Health {
            fault();
            unreachable!("it has panicked")
        }

        /// The monitor may take one for its graphs before the health is asked for.
        fn snapshot(&self) -> Promise<'_, Snapshot> {
            fault();
            unreachable!("it has panicked")
        }
    }

    fn ask_monitor() {
        let address = Address::Tcp { host: String::new(), port: 0 };
        let listener = Listener::bind(&address).unwrap();
        let address = listener.address();
        let monitor = Monitor::start(listener, Arc::new(Faulty), Messages::default()).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        std::io::Write::write_all(&mut stream, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        std::mem::forget((monitor, stream));
    }
}

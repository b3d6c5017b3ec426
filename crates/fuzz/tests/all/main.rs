//! Runs every target for a second: no input makes it panic, hang, or take too much memory.
//!
//! `ZODIUM_TEST_FUZZ_SECONDS` makes it longer, `ZODIUM_SEED` selects the inputs. `make fuzz` looks
//! for inputs that reach further code.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod changes;
mod failing_targets;
mod feeding;

use std::time::Duration;

use feeding::Budget;
use parking_lot::Mutex;
use zodium_fuzz::targets::{TARGETS, find};

/// Time limit of an input, on the slowest machine that tests run on.
const INPUT_TIME_MAX: Duration = Duration::from_secs(20);

/// Memory is counted for the whole process: one target at a time.
static FEEDING: Mutex<()> = Mutex::new(());

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")),
        Err(_) => default,
    }
}

fn does_no_harm(name: &str) {
    let _one = FEEDING.lock();
    let target = find(name).expect("the target is in the list");
    let time = Duration::from_secs(number("ZODIUM_TEST_FUZZ_SECONDS", 1));
    let budget = Budget { seed: number("ZODIUM_SEED", 1), time, input_time_max: INPUT_TIME_MAX };
    match feeding::feed(target, budget) {
        Ok(count) => assert!(count > 10, "only {count} inputs"),
        Err(failure) => {
            let path = failure.keep(target).unwrap();
            let (input, reason) = (failure.input.escape_ascii(), failure.reason);
            let (path, found) = (path.display(), target.found());
            panic!(
                "{name}: {reason}\nthe input {input}\nis in {path}; once it is in {}, each run \
                 of this test replays it",
                found.display()
            );
        }
    }
}

macro_rules! targets {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                does_no_harm($name);
            }
        )*

        #[test]
        fn every_target_has_its_test() {
            let tested = [$($name),*];
            assert!(TARGETS.iter().all(|target| tested.contains(&target.name)));
        }
    };
}

targets! {
    no_stream_does_harm: "frames",
    no_greeting_does_harm: "handshakes",
    no_pickled_request_does_harm: "requests-z5",
    no_packed_request_does_harm: "requests-m5",
    no_pickled_reply_does_harm: "replies-z5",
    no_packed_reply_does_harm: "replies-m5",
    the_short_cut_for_loads_agrees_with_the_decoder: "loads",
    no_pickle_does_harm: "pickles",
    no_record_does_harm: "records",
    no_conflict_does_harm: "resolution",
    no_data_file_does_harm: "data-file",
    no_index_does_harm: "index",
    no_checksum_of_an_index_changes_an_answer: "index-checksum",
    no_side_file_of_checksums_changes_an_answer: "checksums",
    what_a_disk_has_changed_is_never_served: "damaged-data",
    no_zconfig_does_harm: "zconfig",
    no_toml_does_harm: "toml",
    no_name_in_a_blob_directory_does_harm: "blob-names",
    no_certificate_does_harm: "certificates",
    no_saved_cache_does_harm: "saved-cache",
    no_chunk_of_records_does_harm: "log_chunks",
    no_message_of_neo_does_harm: "neo-messages",
    no_greeting_of_neo_does_harm: "neo-greetings",
    no_peer_of_a_neo_node_does_harm: "neo-node",
    no_request_of_resp_does_harm: "resp-requests",
    no_rdb_file_does_harm: "rdb-files",
    no_log_of_keys_does_harm: "key-logs",
    the_short_cut_for_replies_to_loads_agrees_with_the_decoder: "load-replies",
    the_begin_of_a_message_that_is_refused_does_no_harm: "begun-transactions",
    no_stored_data_of_neo_do_harm: "neo-data",
    no_dump_does_harm: "dumps",
    no_listed_pickle_does_harm: "disassembly",
}

//! Runs every decoder for a second: no input makes it panic, hang, or use too much memory.
//!
//! `FUZZ_SECONDS` makes it longer, `FUZZ_SEED` selects the inputs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::time::Duration;

use zodium_fuzz::run::{Budget, run};
use zodium_fuzz::targets::{TARGETS, find};

fn number(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn does_no_harm(name: &str) {
    let budget = Budget {
        time: Duration::from_secs_f64(number("FUZZ_SECONDS", 1.0)),
        inputs: u64::MAX,
        seed: number("FUZZ_SEED", 1.0) as u64,
    };
    match run(find(name).expect("the target is in the list"), budget) {
        Ok(tally) => assert!(tally.inputs > 10, "{tally:?}"),
        Err(failure) => panic!("{failure}"),
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
}

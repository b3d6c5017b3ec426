//! What every kind of storage must do: claims, each a test of its own.
//!
//! A kind of storage runs all of them with one line, `zodium_storage_kit::check_storage!(open)`.
//! There `open()` gives an empty storage as an `Arc<dyn Storage>`. It can come in a pair with what
//! it needs for as long as it is tested. Each claim gets one of its own.
//!
//! A kind that cannot hold some claims names each with the reason:
//! `check_storage!(open, without: LIST)`, where the list is a `&[(&str, &str)]`. Those must fail,
//! so that the list stays true.
//!
//! A kind that needs what not every machine has makes all claims ignored tests:
//! `check_storage!(open, ignored: "needs such a server")`.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]
#![allow(missing_docs, reason = "the name of a claim is what it claims")]

pub mod commits;
pub mod copies;
pub mod deletions;
pub mod following;
pub mod histories;
pub mod loads;
pub mod packs;
pub mod random;
pub mod read_only;
pub mod reopening;
pub mod resident;
pub mod spools;
mod tester;
pub mod undos;
pub mod walks;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use tester::Tester;

/// Checks a claim. One that is left out must fail.
pub fn check(claim: &str, without: &[(&str, &str)], holds: impl FnOnce()) {
    match without.iter().find(|(name, _)| *name == claim) {
        None => holds(),
        Some((_, reason)) => {
            let failed = catch_unwind(AssertUnwindSafe(holds));
            assert!(failed.is_err(), "{claim} holds, though it was left out: {reason}");
        }
    }
}

/// Makes a test of each claim, in a module for each room of claims.
#[macro_export]
macro_rules! check_storage {
    ($open:ident) => {
        $crate::check_storage! { $open, without: [] }
    };
    ($open:ident, without: $without:expr) => {
        $crate::check_storage! { $open, without: $without, attributes: [] }
    };
    ($open:ident, ignored: $reason:literal) => {
        $crate::check_storage! { $open, without: [], attributes: [#[ignore = $reason]] }
    };
    ($open:ident, without: $without:expr, attributes: $attributes:tt) => {
        const WITHOUT: &[(&str, &str)] = &$without;

        $crate::check_storage! { $open, $attributes;
            loads: [
                empty_storage_has_no_object, missing_object_is_missing,
                stored_object_is_loaded, loaded_revision_is_current,
                load_before_the_first_revision_finds_none, load_before_zero_finds_none,
                load_at_its_own_tid_finds_the_revision_before, load_just_after_it_finds_it,
                every_tid_finds_the_revision_of_its_time, end_is_the_next_serial,
                same_bytes_twice_are_two_revisions, objects_do_not_mix,
                large_oids_are_objects_like_others, one_byte_is_data, a_megabyte_comes_back_whole,
                all_bytes_come_back_as_they_were, load_serial_finds_exactly_that_revision,
                load_serial_of_another_transaction_finds_nothing,
                current_serial_is_that_of_the_last_transaction,
                current_serial_of_an_unknown_object_is_none,
                blocking_and_resident_reads_agree, answer_stays_current_until_the_next_revision,
                answer_of_another_object_does_not_end_it, record_names_the_transaction_of_its_data,
                many_loads_answer_as_single_ones,
            ];
            deletions: [
                deleted_object_is_missing, deleted_object_keeps_its_older_revisions,
                revision_before_a_deletion_ends_with_it, deletion_has_a_serial,
                deleted_object_has_no_living_serial, deleted_object_is_stored_again,
                load_serial_of_a_deletion_finds_nothing, record_of_a_deletion_has_no_data,
                deletion_of_an_unknown_object_is_missing, walk_shows_deleted_objects_without_data,
            ];
            histories: [
                history_of_an_unknown_object_is_empty, history_is_newest_first,
                history_has_as_many_entries_as_asked, history_tells_users_and_descriptions,
                history_ends_when_its_reader_has_enough, history_tells_sizes,
                history_shows_deletions, history_of_zero_entries_is_empty,
                pointing_record_has_no_size_of_its_own,
            ];
            walks: [
                empty_storage_has_no_first_object, walk_goes_through_all_objects_in_oid_order,
                walk_from_the_middle, walk_beyond_the_last_object_ends,
                walk_shows_current_revisions, transactions_come_oldest_first,
                transactions_within_a_range, range_ends_are_included, empty_range_is_empty,
                records_come_in_the_order_of_arrival, records_of_each_transaction_are_its_own,
                metadata_come_back_byte_for_byte, cursor_does_not_see_later_commits,
                reading_shows_transactions_and_records, reading_can_be_broken_off_and_resumed,
                reading_without_records_shows_transactions, reading_can_skip_the_other_records,
                cursor_has_no_records_before_the_first_step, recent_transactions_oldest_first,
                recent_is_limited, recent_names_each_object_once,
                copied_transaction_keeps_its_status, undone_transaction_does_not_count,
            ];
            commits: [
                new_storage_is_writable, last_tid_of_an_empty_storage_is_zero,
                last_tid_is_that_of_the_last_commit, size_and_objects_grow,
                many_objects_are_counted,
                transaction_is_visible_when_commit_returns,
                prepared_transaction_is_invisible, aborted_transaction_leaves_nothing,
                transaction_of_many_records, transaction_without_records_is_kept,
                batch_is_committed_in_order, batch_names_its_objects,
                last_record_of_an_object_counts, committed_oids_are_each_once,
                object_stored_before_stays_when_another_is_prepared,
                new_oids_are_new, new_oids_of_threads_do_not_meet, stored_oid_is_not_handed_out,
                too_many_oids_are_refused, readers_see_whole_transactions,
                storage_is_read_after_it_was_closed, same_as_copies_the_data,
                same_as_an_unknown_transaction_is_refused, same_as_a_deletion_is_one,
                commits_from_many_threads_are_all_there, commits_from_many_threads_are_counted,
                prepared_by_another_storage_is_refused,
            ];
            copies: [
                empty_copy_changes_nothing, applied_transactions_come_back_as_they_were,
                many_revisions_of_one_object_are_applied_in_order,
                applied_back_pointer_is_one_where_its_record_is_there,
                copy_goes_on_where_the_last_one_ended, older_transaction_is_not_applied,
                unfinished_copy_leaves_nothing_prepared,
            ];
            undos: [
                unknown_transaction_cannot_be_undone, records_to_undo_name_the_revision_before,
                first_revision_has_none_before, record_to_undo_comes_once_for_each_object,
                undo_log_is_newest_first, undo_log_can_be_broken_off,
                undone_status_cannot_be_undone, packed_status_cannot_be_undone,
                back_pointer_tells_its_source,
            ];
            spools: [
                spooled_data_come_back, many_spooled_records_of_one_transaction,
                spooled_data_of_ten_megabytes, spool_is_readable_before_the_commit,
            ];
            resident: [
                resident_revisions_are_the_current_ones, resident_look_up_can_be_broken_off,
                missing_object_is_not_resident, look_up_of_many_objects_shows_the_first,
                resident_loads_are_of_their_time, resident_loads_see_each_commit,
                resident_loads_agree_after_a_pack,
            ];
            reopening: [
                empty_storage_is_reopened, reopening_changes_nothing,
                commits_go_on_after_a_reopening,
                prepared_before_a_reopening_is_committed_after_it,
                aborted_after_a_reopening_leaves_nothing, oids_are_new_after_a_reopening,
            ];
            packs: [
                pack_of_an_empty_storage_frees_nothing, pack_drops_old_revisions,
                pack_tells_what_it_frees, pack_drops_transactions_without_records,
                pack_keeps_what_is_current_at_its_time, pack_keeps_everything_later,
                pack_drops_what_the_root_does_not_lead_to, pack_without_gc_keeps_garbage,
                pack_drops_deleted_objects, packed_objects_are_not_counted,
                packed_transactions_say_so,
                packed_transaction_cannot_be_undone, second_pack_frees_nothing,
                pack_keeps_the_last_tid, pack_to_before_everything_frees_nothing,
                pack_to_before_the_last_pack_frees_nothing,
                cancelled_pack_changes_nothing, cursor_goes_on_over_a_pack,
                revision_that_is_pointed_to_survives,
                back_pointers_lead_to_records_that_a_pack_has_left, pack_makes_old_answers_stale,
                commits_go_on_after_a_pack, prepared_before_a_pack_is_committed_after_it,
                pack_keeps_what_a_voted_undo_brings_back,
            ];
            random: [random_transactions_are_read_as_a_map_says, random_packs_keep_what_is_seen];
        }
    };
    ($open:ident, $attributes:tt; $($room:ident: [$($claim:ident),* $(,)?];)*) => {
        $(
            mod $room {
                $(
                    $crate::claim_test! { $open, $attributes, $room, $claim }
                )*
            }
        )*

        #[test]
        fn what_is_left_out_are_claims() {
            let claims = [$($(stringify!($claim)),*),*];
            for (name, _) in WITHOUT {
                assert!(claims.contains(name), "there is no claim {name}");
            }
        }
    };
}

/// Makes the test of one claim.
#[doc(hidden)]
#[macro_export]
macro_rules! claim_test {
    ($open:ident, [$($attribute:tt)*], $room:ident, $claim:ident) => {
        #[test]
        $($attribute)*
        fn $claim() {
            $crate::check(stringify!($claim), super::WITHOUT, || {
                $crate::$room::$claim(&$crate::Tester::from(super::$open()));
            });
        }
    };
}

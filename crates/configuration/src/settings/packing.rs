//! `[storage.pack]`: what packs drop and keep, and when the server packs by itself.

use super::kinds::{Choice, Days, List, Switch, TimeOfDay};

/// The schedule of packs by the server, in local time.
#[derive(Clone, Debug, PartialEq)]
pub struct PackSchedule {
    /// Hour, from 0 to 23, and minute.
    pub at: (u8, u8),
    /// Days of the week; empty: all.
    pub on: Vec<Weekday>,
    /// Days of history that are kept.
    pub keep_days: f64,
}

impl Default for PackSchedule {
    fn default() -> PackSchedule {
        PackSchedule { at: (0, 0), on: Vec::new(), keep_days: 1.0 }
    }
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "days need none")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Weekday {
    /// The week, from Monday.
    pub const ALL: [Weekday; 7] = [
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
        Weekday::Sunday,
    ];
}

const DAYS: [(&str, Weekday, &str); 7] = [
    ("monday", Weekday::Monday, ""),
    ("tuesday", Weekday::Tuesday, ""),
    ("wednesday", Weekday::Wednesday, ""),
    ("thursday", Weekday::Thursday, ""),
    ("friday", Weekday::Friday, ""),
    ("saturday", Weekday::Saturday, ""),
    ("sunday", Weekday::Sunday, ""),
];

settings! {
    /// Options of packs.
    pub struct PackOptions {
        /// Drop objects that cannot be reached from the root
        ///
        /// That is wrong for objects that only other databases refer to.
        garbage_collection: bool = true, {
            Switch;
            key: "garbage-collection", zeo_conf: "pack-gc", option: "no-pack-gc", flag: "false",
            option_help: "Let packs remove old revisions only, not objects

                By default they also remove objects that cannot be reached from the root. That is
                wrong for objects that only other databases refer to."
        }

        /// Keep the file as it was before a pack as Data.fs.old
        keep_old: bool = true, {
            Switch;
            key: "keep-old", zeo_conf: "pack-keep-old", option: "no-pack-keep-old", flag: "false",
            option_help: "Do not keep the file as it was before a pack as Data.fs.old"
        }

        /// Fail when an object refers to a missing one, instead of only reporting it
        abort_on_dangling: bool = false, { Switch; key: "abort-on-dangling" }

        /// Schedule of packs by the server.
        schedule: Option<PackSchedule> = None, [
            {
                TimeOfDay;
                key: "at", otherwise: "never",
                help: "Time of day at which the server packs by itself, `\"HH:MM\"`, local time";
                get: |pack| pack.schedule.as_ref().map(|schedule| schedule.at),
                set: |pack, time| pack.schedule.get_or_insert_default().at = time,
            },
            {
                List(Choice(&DAYS));
                key: "on", help: "Days on which the server packs, if not on all";
                get: |pack| Some(pack.schedule.clone().unwrap_or_default().on),
                set: |pack, days| pack.schedule.get_or_insert_default().on = days,
            },
            {
                Days;
                key: "keep-days", help: "Days of history that these packs keep";
                get: |pack| Some(pack.schedule.clone().unwrap_or_default().keep_days),
                set: |pack, days| pack.schedule.get_or_insert_default().keep_days = days,
            },
        ]
    }
}

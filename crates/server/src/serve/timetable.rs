//! The times of scheduled packs: at a time of day, in local time, on some days of the week.
//!
//! If a change of the clocks skips a time, the pack is that much later; if the time comes twice,
//! the first one counts. A missed time is not made up for: the server was down, the machine asleep,
//! or the previous pack still running.

use jiff::civil::Time;
use jiff::{SignedDuration, Timestamp, Zoned};
use zodium_configuration::{PackSchedule, Weekday};

/// A time that is noticed later than this counts as missed.
const LATE_MAX: SignedDuration = SignedDuration::from_mins(5);
/// A clock that was set back by less does not bring a time again.
const SET_BACK_MAX: SignedDuration = SignedDuration::from_hours(1);
/// Days to look ahead: they include every day of the week.
const DAYS_AHEAD: usize = 8;

/// Iterates over the times of a schedule.
#[derive(Debug)]
pub(crate) struct Timetable {
    at: Time,
    on: Vec<Weekday>,
    next: Option<Timestamp>,
}

/// The meaning of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The time has come. The next one is looked up with [`Timetable::skip_to`].
    Due,
    /// The time has passed too long ago.
    Missed(Timestamp),
    /// The time comes after this duration.
    Wait(SignedDuration),
    /// There is no such time.
    Never,
}

impl Timetable {
    /// The times after `now`, in its zone.
    pub(crate) fn new(schedule: &PackSchedule, now: &Zoned) -> Timetable {
        let (hour, minute) = schedule.at;
        let clamped = |number: u8, most: i8| i8::try_from(number).unwrap_or(most).min(most);
        let at = Time::constant(clamped(hour, 23), clamped(minute, 59), 0, 0);
        let mut timetable = Timetable { at, on: schedule.on.clone(), next: None };
        timetable.skip_to(now);
        timetable
    }

    /// The next time, if there is one.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// Compares `now` with the next time.
    pub(crate) fn turn(&mut self, now: &Zoned) -> Turn {
        // The clock may have been far ahead when the next time was looked up.
        let later = now.checked_add(SET_BACK_MAX).ok();
        let first = later.and_then(|later| self.first_after(&later));
        self.next = self.next.into_iter().chain(first).min();
        let Some(next) = self.next else { return Turn::Never };
        let late = now.timestamp().duration_since(next);
        if late.is_negative() {
            Turn::Wait(late.abs())
        } else if late <= LATE_MAX {
            Turn::Due
        } else {
            Turn::Missed(next)
        }
    }

    /// Skips to the first time after `now`.
    pub(crate) fn skip_to(&mut self, now: &Zoned) {
        self.next = self.first_after(now);
    }

    fn first_after(&self, now: &Zoned) -> Option<Timestamp> {
        let days = now.date().series(jiff::Span::new().days(1)).take(DAYS_AHEAD);
        let days = days.filter(|day| {
            self.on.is_empty() || self.on.iter().any(|on| jiff_day(*on) == day.weekday())
        });
        let mut times =
            days.filter_map(|day| now.time_zone().to_timestamp(day.to_datetime(self.at)).ok());
        times.find(|time| *time > now.timestamp())
    }
}

fn jiff_day(day: Weekday) -> jiff::civil::Weekday {
    match day {
        Weekday::Monday => jiff::civil::Weekday::Monday,
        Weekday::Tuesday => jiff::civil::Weekday::Tuesday,
        Weekday::Wednesday => jiff::civil::Weekday::Wednesday,
        Weekday::Thursday => jiff::civil::Weekday::Thursday,
        Weekday::Friday => jiff::civil::Weekday::Friday,
        Weekday::Saturday => jiff::civil::Weekday::Saturday,
        Weekday::Sunday => jiff::civil::Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    /// Central Europe: clocks go forward on 2026-03-29 at 02:00, back on 2026-10-25 at 03:00.
    fn local(time: &str) -> Zoned {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        time.parse::<Timestamp>().unwrap().to_zoned(zone)
    }

    fn timetable(at: (u8, u8), on: &[Weekday], now: &str) -> Timetable {
        let schedule = PackSchedule { at, on: on.to_vec(), keep_days: 1.0 };
        Timetable::new(&schedule, &local(now))
    }

    /// The first times after `now`.
    fn times(at: (u8, u8), on: &[Weekday], now: &str, count: usize) -> Vec<String> {
        let mut timetable = timetable(at, on, now);
        let next = |_| {
            let next = timetable.next().unwrap();
            let here = local(&next.to_string());
            assert_eq!(timetable.turn(&here), Turn::Due);
            timetable.skip_to(&here);
            next.to_string()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn every_day_at_the_same_local_time() {
        // 2026-07-01 is a Wednesday.
        let expected = ["2026-07-01T22:30:00Z", "2026-07-02T22:30:00Z", "2026-07-03T22:30:00Z"];
        assert_eq!(times((0, 30), &[], "2026-07-01T12:00:00Z", 3), expected);
        assert_eq!(times((0, 30), &[], "2026-07-01T22:29:59Z", 3), expected);
        assert_eq!(times((0, 30), &[], "2026-07-01T22:30:00Z", 2), expected[1..]);
    }

    #[test]
    fn only_on_the_days_that_are_named() {
        let on = [Weekday::Sunday, Weekday::Wednesday];
        let expected = ["2026-07-01T13:00:00Z", "2026-07-05T13:00:00Z", "2026-07-08T13:00:00Z"];
        assert_eq!(times((15, 0), &on, "2026-07-01T12:00:00Z", 3), expected);
        // A week later, when the time of its only day has passed.
        let expected = ["2026-07-08T13:00:00Z"];
        assert_eq!(times((15, 0), &on[1..], "2026-07-01T13:00:00Z", 1), expected);
    }

    #[test]
    fn a_time_that_is_left_out_comes_an_hour_later_and_one_that_comes_twice_once() {
        let expected = ["2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"];
        assert_eq!(times((2, 30), &[], "2026-03-28T01:00:00Z", 3), expected);
        let expected = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
        assert_eq!(times((2, 30), &[], "2026-10-24T00:00:00Z", 3), expected);
    }

    #[test]
    fn what_was_missed_is_not_caught_up() {
        let mut timetable = timetable((15, 0), &[], "2026-07-01T12:00:00Z");
        let wait = Turn::Wait(SignedDuration::from_hours(1));
        assert_eq!(timetable.turn(&local("2026-07-01T12:00:00Z")), wait);
        assert_eq!(timetable.turn(&local("2026-07-01T13:04:59Z")), Turn::Due);
        let awake = local("2026-07-03T08:00:00Z");
        let missed = "2026-07-01T13:00:00Z".parse().unwrap();
        assert_eq!(timetable.turn(&awake), Turn::Missed(missed));
        timetable.skip_to(&awake);
        assert_eq!(timetable.turn(&awake), Turn::Wait(SignedDuration::from_hours(5)));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_the_wait_longer() {
        let mut timetable = timetable((15, 0), &[], "2026-07-01T12:00:00Z");
        let wait = Turn::Wait(SignedDuration::from_hours(3));
        assert_eq!(timetable.turn(&local("2026-07-01T10:00:00Z")), wait);
        // A small step behind a time does not bring it again.
        timetable.skip_to(&local("2026-07-01T13:00:01Z"));
        let wait = Turn::Wait(SignedDuration::from_hours(24) + SignedDuration::from_secs(1));
        assert_eq!(timetable.turn(&local("2026-07-01T12:59:59Z")), wait);
    }

    #[test]
    fn a_clock_that_was_far_ahead_at_the_start_takes_no_times_away() {
        let mut timetable = timetable((15, 0), &[], "2036-07-01T12:00:00Z");
        let wait = Turn::Wait(SignedDuration::from_hours(3));
        assert_eq!(timetable.turn(&local("2026-07-01T10:00:00Z")), wait);
        assert_eq!(timetable.turn(&local("2026-07-01T13:00:00Z")), Turn::Due);
    }
}

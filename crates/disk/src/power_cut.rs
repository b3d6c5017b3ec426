//! What a power cut leaves of what was written and not synced: the model of a disk that the crash
//! tests hold the storage against.
//!
//! A disk writes pieces of 512 or 4096 bytes, in any order, and promises nothing before a sync.
//! So of each file
//! - every piece that was changed since the last sync is there or not, each for itself; one that
//!   is not there reads as it did when last synced, and as zeros where there was nothing then
//!   (beyond the old end, in reserved space), or where the file was cut meanwhile;
//! - one of the pieces may be new up to some 16 bytes and old from there on, though disks promise
//!   otherwise for 512;
//! - the length is the old one, the new one, or, while it grew, one between them;
//!
//! and of each folder every change of names since its last sync took place or not, each for
//! itself; but a rename is never half done, which file systems promise. Pieces never hold
//! anything that was not written there: against that only checksums help.

/// Which changes survive, of many that were made one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// No change.
    None,
    /// Every change.
    All,
    /// The first ones, as if written in order.
    First,
    /// The last ones, as if written in reverse.
    Last,
    /// All but one.
    AllButOne,
    /// One alone.
    One,
    /// Each for itself.
    Any,
}

/// How long a file is afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurvivingLength {
    /// As long as when last synced.
    Old,
    /// As long as it was.
    New,
    /// Any of those, or one between them.
    Any,
}

/// A torn piece is new up to a multiple of so many bytes: nothing in a machine moves fewer at once.
pub const TORN_BYTES: usize = 16;

/// One way in which the power may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// Of the pieces of each file.
    pub pieces: Survivors,
    /// Bytes of a piece: 512 or 4096.
    pub piece_bytes: usize,
    /// Whether one of the changed pieces is only there up to a multiple of [`TORN_BYTES`].
    pub tears_a_piece: bool,
    /// Of each file.
    pub length: SurvivingLength,
    /// Of the changes of names.
    pub names: Survivors,
}

impl PowerCut {
    /// Ways that differ in kind, the cases at the edges among them.
    pub const KINDS: [PowerCut; 12] = {
        use SurvivingLength as Length;
        use Survivors::{All, AllButOne, Any, First, Last, None, One};
        [
            PowerCut::of(None, 512, false, Length::Old, All),
            PowerCut::of(None, 512, false, Length::New, None),
            PowerCut::of(All, 512, false, Length::New, None),
            PowerCut::of(All, 512, false, Length::Any, Any),
            PowerCut::of(First, 512, true, Length::Any, First),
            PowerCut::of(Last, 512, true, Length::New, Last),
            PowerCut::of(AllButOne, 512, false, Length::New, AllButOne),
            PowerCut::of(One, 512, false, Length::New, One),
            PowerCut::of(Any, 512, false, Length::New, Any),
            PowerCut::of(Any, 512, true, Length::Any, Any),
            PowerCut::of(AllButOne, 4096, false, Length::New, Any),
            PowerCut::of(Any, 4096, true, Length::New, All),
        ]
    };

    const fn of(
        pieces: Survivors,
        piece_bytes: usize,
        tears_a_piece: bool,
        length: SurvivingLength,
        names: Survivors,
    ) -> PowerCut {
        PowerCut { pieces, piece_bytes, tears_a_piece, length, names }
    }
}

/// Where a random choice comes from: gives a number below the one it is given, which is above 0.
pub type Choose<'a> = &'a mut dyn FnMut(u64) -> u64;

impl Survivors {
    /// For each of `count` changes whether it survives.
    pub(crate) fn choose(self, count: usize, choose: Choose<'_>) -> Vec<bool> {
        if count == 0 {
            return Vec::new();
        }
        let one = choose(count as u64) as usize;
        let survives = |number: usize| match self {
            Survivors::None => false,
            Survivors::All => true,
            Survivors::First => number <= one,
            Survivors::Last => number >= one,
            Survivors::AllButOne => number != one,
            Survivors::One => number == one,
            Survivors::Any => choose(2) == 1,
        };
        (0..count).map(survives).collect()
    }
}

impl SurvivingLength {
    pub(crate) fn choose(self, old: usize, new: usize, choose: Choose<'_>) -> usize {
        match self {
            SurvivingLength::Old => old,
            SurvivingLength::New => new,
            SurvivingLength::Any => match choose(3) {
                0 => old,
                1 => new,
                _ => old.min(new) + choose(old.abs_diff(new) as u64 + 1) as usize,
            },
        }
    }
}

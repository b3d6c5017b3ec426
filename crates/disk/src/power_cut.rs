//! The model of a power cut: what it leaves of unsynced writes. Crash tests use it.
//!
//! A disk writes pieces of 512 or 4096 bytes, in any order, and promises nothing before a sync.
//! So of each file:
//! - Every piece that was changed since the last sync is there or not, independently. A piece that
//!   is not there reads as at the last sync. It reads as zeros beyond the old end, in reserved
//!   space, or where the file was truncated meanwhile.
//! - One of the pieces may be torn: new up to a multiple of 16 bytes, and old from there on. Disks
//!   promise that 512 bytes are not torn, but this model does not rely on it.
//! - The length is the old one, the new one, or, if the file grew, any between them.
//!
//! Of each folder every change of names since its last sync took place or not, independently. A
//! rename is atomic, which file systems promise. Pieces never hold bytes that were not written
//! there: only checksums help against that.

/// Which of a sequence of changes survive.
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
    /// Only one.
    One,
    /// Any subset.
    Any,
}

/// The length of a file afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurvivingLength {
    /// The length at the last sync.
    Old,
    /// The length before the power cut.
    New,
    /// Either, or any length between them.
    Any,
}

/// A torn piece is new up to a multiple of so many bytes; hardware moves no fewer at once.
pub const TORN_BYTES: usize = 16;

/// One kind of power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// Which changed pieces of each file survive.
    pub pieces: Survivors,
    /// Bytes of a piece: 512 or 4096.
    pub piece_bytes: usize,
    /// Whether one of the changed pieces is torn, at a multiple of [`TORN_BYTES`].
    pub tears_a_piece: bool,
    /// The length of each file afterwards.
    pub length: SurvivingLength,
    /// Which changes of names survive.
    pub names: Survivors,
}

impl PowerCut {
    /// Kinds that differ, including the edge cases.
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

/// The source of random choices: gives a number below its argument, which is above 0.
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

//! Restore points: what a storage was at a backup.
//!
//! Key decision: points of one writer are numbered without gaps, and a number is taken by creating
//! the object. So a writer that another one has followed can never add a point: the number that it
//! would take is not free.

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use zodium_types::Tid;

use super::blobs::Blob;
use super::chunk_store::{ChunkStore, Delta, tid_of};
use super::hash::Hash;
use super::opened::{POINTS as FOLDER, Repository};
use crate::BackupError;

/// Chunks that one page lists.
const PAGE_CHUNKS: usize = 1024;
/// Ends the name of a point.
const SUFFIX: &str = ".json";

/// A restore point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Counts points from 1, and is its name.
    #[serde(skip)]
    pub number: u64,
    /// When it was made, in seconds since 1970.
    pub seconds: i64,
    /// The first transaction; empty texts stand for none.
    pub(super) first: String,
    /// The last transaction.
    pub(super) last: String,
    /// Transactions.
    pub transactions: u64,
    /// Bytes of the content of all chunks.
    pub bytes: u64,
    /// Whether the storage was a data file of Python 2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub python_2: bool,
    /// Lists of chunks, with the bytes of their content.
    pages: Vec<(Hash, u64)>,
    /// The point that this one continues: all of that one comes before the chunks of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    continues: Option<Link>,
    /// What a point that continues another one adds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) chunks: Vec<Chunk>,
    /// Random: no two writers write the same text.
    draw: String,
    /// The sum of its text.
    #[serde(skip)]
    sum: Option<Hash>,
}

/// A point that is to be written. After an error it can be written again: it may be there already.
pub(super) struct Unwritten {
    point: Point,
    bytes: Vec<u8>,
}

/// Names a point, and says what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Link {
    point: u64,
    sum: Hash,
}

/// A chunk, as a page lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub(super) hash: Hash,
    pub(super) bytes: u64,
    pub(super) first: String,
    pub(super) last: String,
    pub(super) transactions: u64,
    /// Where the last transaction was cut, if the next chunk goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cut: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) blobs: Vec<Blob>,
    /// How its content is stored, if not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) delta: Option<Delta>,
}

impl Chunk {
    /// Its items, verified.
    pub(super) fn content(&self, store: &ChunkStore<'_>) -> Result<Vec<u8>, BackupError> {
        match &self.delta {
            None => store.get(&self.hash, self.bytes),
            Some(delta) => store.get_delta(&self.hash, self.bytes, delta),
        }
    }

    /// The objects that it needs, those of its blobs included.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Hash> {
        self.content_objects().chain(self.blobs.iter().flat_map(|blob| &blob.pieces))
    }

    /// The objects that its content needs.
    pub(super) fn content_objects(&self) -> impl Iterator<Item = &Hash> {
        let delta = self.delta.iter();
        let whole = self.delta.is_none().then_some(&self.hash);
        let stored =
            delta.flat_map(|delta| delta.bases.iter().map(|(hash, _)| hash).chain([&delta.object]));
        stored.chain(whole)
    }
}

impl Point {
    /// The last transaction; [`Tid::ZERO`] for an empty storage.
    pub fn last(&self) -> Tid {
        tid_of(&self.last)
    }

    /// Whether it lists all of its chunks, and needs no other point.
    pub fn is_complete(&self) -> bool {
        self.continues.is_none()
    }

    /// Stores the lists of chunks, and gives the point that refers to them.
    pub(super) fn complete(
        store: &ChunkStore<'_>,
        number: u64,
        seconds: i64,
        python_2: bool,
        chunks: &[Chunk],
    ) -> Result<Point, BackupError> {
        let mut pages = Vec::new();
        for page in chunks.chunks(PAGE_CHUNKS) {
            let text = serde_json::to_vec(page).map_err(unwritable)?;
            pages.push((store.put(&text)?.0, text.len() as u64));
        }
        let first = chunks.first().map_or(String::new(), |chunk| chunk.first.clone());
        let last = chunks.last().map_or(String::new(), |chunk| chunk.last.clone());
        let transactions = chunks.iter().map(|chunk| chunk.transactions).sum();
        let bytes = chunks.iter().map(|chunk| chunk.bytes).sum();
        let (continues, chunks, sum, draw) = (None, Vec::new(), None, drawn()?);
        Ok(Point {
            number,
            seconds,
            first,
            last,
            transactions,
            bytes,
            python_2,
            pages,
            continues,
            chunks,
            draw,
            sum,
        })
    }

    /// The point after this one, with one more chunk.
    pub(super) fn continued(&self, seconds: i64, chunk: Chunk) -> Result<Point, BackupError> {
        let Some(sum) = self.sum.clone() else {
            let what = format!("restore point {} was never written", self.number);
            return Err(BackupError::Refused(what));
        };
        let first = match self.first.is_empty() {
            true => chunk.first.clone(),
            false => self.first.clone(),
        };
        Ok(Point {
            number: self.number + 1,
            seconds,
            first,
            last: chunk.last.clone(),
            transactions: self.transactions + chunk.transactions,
            bytes: self.bytes + chunk.bytes,
            python_2: self.python_2,
            pages: Vec::new(),
            continues: Some(Link { point: self.number, sum }),
            chunks: vec![chunk],
            draw: drawn()?,
            sum: None,
        })
    }

    /// Whether this point continues that one.
    pub(super) fn is_after(&self, before: &Point) -> bool {
        self.continues.as_ref().is_some_and(|link| {
            link.point == before.number && Some(&link.sum) == before.sum.as_ref()
        })
    }

    /// The hashes of its pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = &Hash> {
        self.pages.iter().map(|(hash, _)| hash)
    }

    /// The chunks that it lists itself, in the order of their transactions.
    pub(super) fn own_chunks(&self, store: &ChunkStore<'_>) -> Result<Vec<Chunk>, BackupError> {
        let mut chunks = Vec::new();
        for (hash, bytes) in &self.pages {
            let page: Vec<Chunk> =
                serde_json::from_slice(&store.get(hash, *bytes)?).map_err(|error| {
                    BackupError::damaged(store.path(hash), format!("no page: {error}"))
                })?;
            chunks.extend(page);
        }
        chunks.extend_from_slice(&self.chunks);
        Ok(chunks)
    }

    /// Makes its text.
    pub(super) fn prepare(self, repository: &Repository) -> Result<Unwritten, BackupError> {
        let text = serde_json::to_string_pretty(&self).map_err(unwritable)? + "\n";
        let sum = Hash::of(text.as_bytes());
        let text = format!("{text}{}\n", sum.as_str()).into_bytes();
        let sealer = repository.sealer();
        let bytes = match sealer.is_encrypting() {
            true => sealer.seal(&object_of(self.number), text)?,
            false => text,
        };
        Ok(Unwritten { point: Point { sum: Some(sum), ..self }, bytes })
    }

    pub(super) fn remove(&self, repository: &Repository) -> Result<(), BackupError> {
        repository.place().remove(&object_of(self.number))
    }
}

impl Unwritten {
    /// Writes it; from then on it counts.
    ///
    /// # Errors
    /// `Fenced` if another writer has written this point. After any other error it may be there.
    pub(super) fn write(&self, repository: &Repository) -> Result<Point, BackupError> {
        let object = object_of(self.point.number);
        let place = repository.place();
        let is_ours = place.create(&object, self.bytes.clone())?
            || place.get(&object)?.is_some_and(|bytes| bytes == self.bytes);
        match is_ours {
            true => Ok(self.point.clone()),
            false => Err(BackupError::Fenced { path: repository.name() }),
        }
    }
}

/// All restore points, the oldest first.
///
/// # Errors
/// `Damaged`.
pub fn points(repository: &Repository) -> Result<Vec<Point>, BackupError> {
    read_all(repository)?.into_iter().collect()
}

/// All restore points, the oldest first, each as far as it can be read.
pub(super) fn read_all(
    repository: &Repository,
) -> Result<Vec<Result<Point, BackupError>>, BackupError> {
    Ok(numbers(repository)?.into_iter().map(|number| read(repository, number)).collect())
}

/// All restore points that can be read, the oldest first.
pub(super) fn readable_points(repository: &Repository) -> Result<Vec<Point>, BackupError> {
    read_all(repository)?.into_iter().filter(|point| !is_damaged(point)).collect()
}

/// Whether there is a result, but for damage.
pub(super) fn is_damaged<T>(result: &Result<T, BackupError>) -> bool {
    result.as_ref().is_err_and(BackupError::is_damage)
}

/// The newest restore point whose lists are whole.
#[derive(Default)]
pub(super) struct Newest {
    /// The point, and the chunks of the complete one that it continues.
    pub(super) point: Option<(Point, Vec<Chunk>)>,
    /// What is wrong with the newest of all, if that is another one.
    pub(super) damage: Option<BackupError>,
    /// The number of the next point.
    pub(super) next_number: u64,
}

/// Finds the newest restore point.
pub(super) fn newest(repository: &Repository) -> Result<Newest, BackupError> {
    let numbers = numbers(repository)?;
    let next_number = numbers.last().map_or(1, |last| last + 1);
    let mut newest = Newest { next_number, ..Newest::default() };
    for number in numbers.into_iter().rev() {
        match with_base_chunks(repository, number) {
            Err(error) if error.is_damage() => {
                newest.damage.get_or_insert(error);
            }
            point => {
                newest.point = Some(point?);
                break;
            }
        }
    }
    Ok(newest)
}

/// A point, and the chunks of the complete one that it continues.
fn with_base_chunks(
    repository: &Repository,
    number: u64,
) -> Result<(Point, Vec<Chunk>), BackupError> {
    let point = read(repository, number)?;
    let mut base = point.clone();
    while let Some(before) = before(repository, &base)? {
        base = before;
    }
    let chunks = base.own_chunks(&repository.store())?;
    Ok((point, chunks))
}

/// All chunks of a point, in the order of their transactions.
pub(super) fn chunks_of(repository: &Repository, point: &Point) -> Result<Vec<Chunk>, BackupError> {
    let mut chain = vec![point.clone()];
    while let Some(before) = chain.last().map(|point| before(repository, point)).transpose()? {
        match before {
            Some(before) => chain.push(before),
            None => break,
        }
    }
    let mut chunks = Vec::new();
    for point in chain.iter().rev() {
        chunks.extend(point.own_chunks(&repository.store())?);
    }
    Ok(chunks)
}

/// The point that another one continues.
fn before(repository: &Repository, point: &Point) -> Result<Option<Point>, BackupError> {
    let Some(link) = &point.continues else { return Ok(None) };
    let before = read(repository, link.point)?;
    let is_earlier = before.number < point.number;
    match is_earlier && point.is_after(&before) {
        true => Ok(Some(before)),
        false => {
            let path = repository.place().path(&object_of(point.number));
            let what = format!("it continues another point {}", link.point);
            Err(BackupError::damaged(path, what))
        }
    }
}

fn numbers(repository: &Repository) -> Result<Vec<u64>, BackupError> {
    let listed = repository.place().list(FOLDER)?;
    let mut numbers: Vec<_> = listed.iter().filter_map(|found| number_of(&found.object)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn read(repository: &Repository, number: u64) -> Result<Point, BackupError> {
    let object = object_of(number);
    let damaged = |what: &str| BackupError::damaged(repository.place().path(&object), what);
    let bytes = repository.place().get(&object)?.ok_or_else(|| damaged("it is missing"))?;
    let sealer = repository.sealer();
    let bytes = match sealer.is_encrypting() {
        true => sealer.open(&object, bytes).map_err(|what| damaged(&what))?,
        false => bytes,
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged("it is no text"))?;
    let (body, sum) = match text.trim_end_matches('\n').rfind('\n') {
        Some(end) => text.split_at(end + 1),
        None => return Err(damaged("it has no sum")),
    };
    let expected = Hash::of(body.as_bytes());
    if format!("{}\n", expected.as_str()) != sum {
        return Err(damaged("its sum differs"));
    }
    let point: Point = serde_json::from_str(body).map_err(|error| damaged(&error.to_string()))?;
    Ok(Point { number, sum: Some(expected), ..point })
}

/// The number of the point that is an object.
pub(super) fn number_of(object: &str) -> Option<u64> {
    let name = object.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(SUFFIX)?;
    let number = name.parse().ok()?;
    (object_of(number) == object).then_some(number)
}

fn object_of(number: u64) -> String {
    format!("{FOLDER}/{number:08}{SUFFIX}")
}

fn drawn() -> Result<String, BackupError> {
    let mut bytes = [0; 8];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| BackupError::Refused("cannot draw random bytes".to_owned()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn unwritable(error: serde_json::Error) -> BackupError {
    BackupError::Refused(format!("a list cannot be written: {error}"))
}

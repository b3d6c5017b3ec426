//! A client's side of RESP: `GET` and `SET` in turns, and the check of their answers.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use bytes::{BufMut, BytesMut};
use zodium_types::Oid;

use crate::dataset::Dataset;
use crate::verifier::Verifier;

/// The answer to a `SET`.
pub(crate) const OK: &[u8] = b"+OK\r\n";
/// Length of a `GET`, and of a `SET` up to its value.
pub(crate) const HEAD_BYTES: usize = 36;
/// Longest line in front of a value.
const HEAD_BYTES_MAX: usize = 16;

/// Which requests a connection makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RespRequests {
    /// Reads before each write; 0 for writes only.
    reads: u32,
}

/// Requests over a connection.
#[derive(Debug)]
pub(crate) struct Requesting {
    requests: RespRequests,
    dataset: Arc<Dataset>,
    /// Requests so far.
    asked: u64,
    /// Which of those without an answer are writes, the oldest first.
    writes: VecDeque<bool>,
}

impl RespRequests {
    /// So many reads before each write.
    pub(crate) fn reading(reads: u32) -> RespRequests {
        RespRequests { reads }
    }

    /// Writes only.
    pub(crate) fn writing() -> RespRequests {
        RespRequests { reads: 0 }
    }

    /// Requests for these values.
    pub(crate) fn of(self, dataset: &Arc<Dataset>) -> Requesting {
        let dataset = Arc::clone(dataset);
        Requesting { requests: self, dataset, asked: 0, writes: VecDeque::new() }
    }
}

impl Requesting {
    /// Encodes the next request, for the key of an object.
    pub(crate) fn put_request(&mut self, out: &mut BytesMut, oid: Oid) -> Result<()> {
        let is_write =
            self.asked % (u64::from(self.requests.reads) + 1) == u64::from(self.requests.reads);
        self.asked += 1;
        self.writes.push_back(is_write);
        let key = oid.0;
        let mut writer = out.writer();
        if is_write {
            let value = self.dataset.data(oid);
            write!(writer, "*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n")?;
            writer.write_all(&answer(&value))?;
        } else {
            write!(writer, "*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n")?;
        }
        Ok(())
    }

    /// Takes the first answer off `bytes`, which is for `oldest`, and checks it. Gives the object
    /// and the length of the answer, or nothing while it is not whole.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        oldest: Option<Oid>,
        verifier: &mut Verifier,
    ) -> Result<Option<(Oid, usize)>> {
        let (Some(is_write), Some(oid)) = (self.writes.front().copied(), oldest) else {
            bail!("the server has answered, and was not asked");
        };
        let taken = match is_write {
            true if bytes.len() < OK.len() && OK.starts_with(bytes) => return Ok(None),
            true if bytes.starts_with(OK) => OK.len(),
            true => bail!("the server answered a SET with {:?}", shown(bytes)),
            false => match value(bytes)? {
                Some((data, taken)) => {
                    verifier.check(&self.dataset, oid, data)?;
                    taken
                }
                None => return Ok(None),
            },
        };
        self.writes.pop_front();
        Ok(Some((oid, taken)))
    }
}

/// The answer to a `GET`. A `SET` ends with the same bytes.
pub(crate) fn answer(value: &[u8]) -> Vec<u8> {
    let head = format!("${}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

/// The number of the key in the head of a request, and whether it is a `SET`.
pub(crate) fn read_head(head: &[u8; HEAD_BYTES]) -> Option<(usize, bool)> {
    let is_write = head.starts_with(b"*3");
    let key = head.strip_suffix(b"\r\n")?.last_chunk::<12>()?;
    Some((std::str::from_utf8(key).ok()?.parse().ok()?, is_write))
}

/// The value of an answer, and the length of the answer; `None` while it is not whole.
fn value(bytes: &[u8]) -> Result<Option<(&[u8], usize)>> {
    let Some(end) = bytes.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == b'\n') else {
        ensure!(bytes.len() < HEAD_BYTES_MAX, "the server answered a GET with {:?}", shown(bytes));
        return Ok(None);
    };
    let line = std::str::from_utf8(&bytes[..end])?;
    let length = line.strip_prefix('$').and_then(|line| line.strip_suffix('\r'));
    let Some(length) = length.and_then(|digits| digits.parse::<usize>().ok()) else {
        bail!("the server answered a GET with {:?}", shown(bytes));
    };
    let start = end + 1;
    let whole = bytes.get(start..start + length + 2);
    Ok(whole.map(|whole| (&whole[..length], start + length + 2)))
}

fn shown(bytes: &[u8]) -> String {
    bytes.iter().take(80).flat_map(|byte| byte.escape_ascii()).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Shape;

    fn asked(reads: u32, count: u64) -> (Requesting, BytesMut, Arc<Dataset>) {
        let dataset = Arc::new(Dataset::new(Shape::Fixed(32), 10, 1, 1));
        let mut requesting = RespRequests::reading(reads).of(&dataset);
        let mut out = BytesMut::new();
        (0..count).for_each(|oid| requesting.put_request(&mut out, Oid(oid)).unwrap());
        (requesting, out, dataset)
    }

    #[test]
    fn writes_come_after_so_many_reads() {
        let (_, out, _) = asked(2, 6);
        let text = String::from_utf8_lossy(&out);
        let words: Vec<&str> = text.split("\r\n").filter(|word| word.ends_with("ET")).collect();
        assert_eq!(words, ["GET", "GET", "SET", "GET", "GET", "SET"]);
        assert!(text.starts_with("*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000000\r\n"), "{text}");
    }

    #[test]
    fn heads_have_the_number_of_the_key() {
        let (_, out, dataset) = asked(1, 2);
        let (get, rest) = out.split_first_chunk().unwrap();
        assert_eq!(read_head(get), Some((0, false)));
        let (set, value) = rest.split_first_chunk().unwrap();
        assert_eq!(read_head(set), Some((1, true)));
        assert_eq!(value, answer(&dataset.data(Oid(1))));
    }

    #[test]
    fn answers_are_taken_when_they_are_whole_and_checked() {
        let (mut requesting, _, dataset) = asked(1, 2);
        let answer = answer(&dataset.data(Oid(0)));
        assert!(answer.starts_with(b"$32\r\n") && answer.ends_with(b"\r\n"));
        for end in 0..answer.len() {
            let part = requesting.take(&answer[..end], Some(Oid(0)), &mut Verifier::Each).unwrap();
            assert_eq!(part, None);
        }
        let mut wrong = answer.clone();
        wrong[10] ^= 1;
        assert!(requesting.take(&wrong, Some(Oid(0)), &mut Verifier::Each).is_err());
        for wrong in [&b"$-1\r\n"[..], b"-ERR x\r\n", b"+OK\r\n"] {
            assert!(requesting.take(wrong, Some(Oid(0)), &mut Verifier::Each).is_err());
        }
        let taken = requesting.take(&answer, Some(Oid(0)), &mut Verifier::Each).unwrap();
        assert_eq!(taken, Some((Oid(0), answer.len())));
        let taken = requesting.take(b"+O", Some(Oid(1)), &mut Verifier::Each).unwrap();
        assert_eq!(taken, None);
        assert!(requesting.take(b"-OOM x\r\n", Some(Oid(1)), &mut Verifier::Each).is_err());
        let taken = requesting.take(b"+OK\r\n", Some(Oid(1)), &mut Verifier::Each).unwrap();
        assert_eq!(taken, Some((Oid(1), 5)));
        assert!(requesting.take(b"+OK\r\n", None, &mut Verifier::Each).is_err());
    }
}

//! Ids of messages on one connection.

/// Gives the ids of the requests and notifications that one side sends on a connection.
///
/// They count from 0, in each direction for itself, and begin again after 2^32. An answer has the
/// id of its request instead.
#[derive(Clone, Debug, Default)]
pub struct MessageIds {
    next: u32,
}

impl MessageIds {
    /// Takes the next id.
    pub fn take(&mut self) -> u32 {
        let id = self.next;
        self.next = id.wrapping_add(1);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_begin_with_0_and_begin_again() {
        let mut ids = MessageIds::default();
        assert_eq!((ids.take(), ids.take()), (0, 1));
        ids.next = u32::MAX;
        assert_eq!((ids.take(), ids.take()), (u32::MAX, 0));
    }
}

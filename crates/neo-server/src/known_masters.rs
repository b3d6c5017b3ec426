//! Tells the program when a node knows other masters.

use std::cell::RefCell;

use zodium_neo::Address;

/// Told the masters that the node knows, when they change.
pub type MastersTold = Box<dyn Fn(&[Address])>;

/// The masters that were told last.
pub(crate) struct KnownMasters {
    told: Option<MastersTold>,
    last: RefCell<Vec<Address>>,
}

impl KnownMasters {
    pub(crate) fn new(told: Option<MastersTold>, masters: Vec<Address>) -> KnownMasters {
        KnownMasters { told, last: RefCell::new(masters) }
    }

    /// These are the masters that the node knows now.
    pub(crate) fn observe(&self, masters: &[Address]) {
        if let Some(told) = &self.told
            && *self.last.borrow() != masters
        {
            *self.last.borrow_mut() = masters.to_vec();
            told(masters);
        }
    }
}

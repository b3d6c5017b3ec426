//! Locks on stripes, to change keys or to read them only.

use std::mem;

use zodium_readlocks::{ReadGuard, ReadGuards, WriteGuard};

use crate::Stripes;
use crate::stripe::Stripe;

/// The guards of a hold.
pub(crate) enum Guards<'a> {
    One(usize, WriteGuard<'a, Stripe>),
    /// These, by number, ascending.
    Many(Stripes, Vec<(usize, WriteGuard<'a, Stripe>)>),
    /// Others may read it too.
    OneRead(usize, ReadGuard<'a, Stripe>),
    ManyRead(Stripes, ReadGuards<'a, Stripe>),
}

impl<'a> Guards<'a> {
    /// The stripes that are held.
    pub(crate) fn stripes(&self) -> Stripes {
        match self {
            Guards::One(number, _) | Guards::OneRead(number, _) => Stripes::one(*number),
            Guards::Many(stripes, _) | Guards::ManyRead(stripes, _) => *stripes,
        }
    }

    /// Adds a stripe that was locked later than the others.
    ///
    /// # Panics
    /// The others are read only.
    pub(crate) fn add(&mut self, number: usize, stripe: WriteGuard<'a, Stripe>) {
        let (held, mut stripes) = match mem::replace(self, Guards::Many(Stripes::NONE, Vec::new()))
        {
            Guards::One(held, first) => (Stripes::one(held), vec![(held, first)]),
            Guards::Many(held, stripes) => (held, stripes),
            Guards::OneRead(..) | Guards::ManyRead(..) => {
                unreachable!("stripe {number} is not locked to read it")
            }
        };
        let place = stripes.partition_point(|(held, _)| *held < number);
        stripes.insert(place, (number, stripe));
        *self = Guards::Many(held | Stripes::one(number), stripes);
    }

    /// # Panics
    /// It is not locked. A command locks the stripes of all its keys.
    pub(crate) fn stripe(&self, number: usize) -> &Stripe {
        let stripe = match self {
            Guards::One(held, stripe) => (*held == number).then_some(&**stripe),
            Guards::Many(_, stripes) => place(stripes, number).map(|place| &*stripes[place].1),
            Guards::OneRead(held, stripe) => (*held == number).then_some(&**stripe),
            Guards::ManyRead(_, stripes) => stripes.get(number),
        };
        let Some(stripe) = stripe else { unreachable!("stripe {number} is not locked") };
        stripe
    }

    /// # Panics
    /// It is not locked, or to be read only. A command that is said to change nothing does so.
    pub(crate) fn stripe_mut(&mut self, number: usize) -> &mut Stripe {
        let stripe = match self {
            Guards::One(held, stripe) => (*held == number).then_some(&mut **stripe),
            Guards::Many(_, stripes) => place(stripes, number).map(|place| &mut *stripes[place].1),
            Guards::OneRead(..) | Guards::ManyRead(..) => None,
        };
        let Some(stripe) = stripe else {
            unreachable!("stripe {number} is not locked to change it")
        };
        stripe
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Stripe> {
        self.stripes().numbers().map(|number| self.stripe(number))
    }

    /// # Panics
    /// As [`Guards::stripe_mut`].
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Stripe> {
        let (one, many) = match self {
            Guards::One(_, stripe) => (Some(&mut **stripe), &mut [][..]),
            Guards::Many(_, stripes) => (None, &mut stripes[..]),
            Guards::OneRead(..) | Guards::ManyRead(..) => {
                unreachable!("no stripe is locked to change it")
            }
        };
        one.into_iter().chain(many.iter_mut().map(|(_, stripe)| &mut **stripe))
    }
}

/// The place of a stripe among those that are held.
fn place(stripes: &[(usize, WriteGuard<'_, Stripe>)], number: usize) -> Option<usize> {
    stripes.binary_search_by_key(&number, |(held, _)| *held).ok()
}

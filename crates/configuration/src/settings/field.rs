//! An entry of the table: a setting with its kind of values, and its place in the model.
//!
//! Key decision: the macro `settings` makes the struct, its defaults and its entries of one
//! text, so that none of them can be forgotten. Kinds are types: a setting whose kind does not fit
//! its place in the model does not compile.

use std::ffi::OsString;

use super::description::Description;
use super::kinds::{Converted, Kind, Values, Written};
use crate::error::{Findings, Mistake};
use crate::surroundings::Surroundings;
use crate::toml_file::table::Table;
use crate::zeo_conf::section::Section;

/// The entries of each field of a group.
pub(crate) type Entries<G> = &'static [&'static [&'static dyn Entry<G>]];

/// A group of settings: a struct of the model, which is a table in TOML.
pub(crate) trait Group: Default + 'static {
    /// The entries of each field.
    const SETTINGS: Entries<Self>;

    /// All entries, in the order of the documentation.
    fn entries() -> impl Iterator<Item = &'static dyn Entry<Self>> {
        Self::SETTINGS.iter().flat_map(|entries| entries.iter().copied())
    }

    /// The names in TOML.
    fn keys() -> impl Iterator<Item = &'static str> {
        Self::entries().map(|entry| entry.description().key)
    }

    /// The names in `zeo.conf`.
    fn zeo_conf_keys() -> impl Iterator<Item = &'static str> {
        Self::entries().map(|entry| entry.description().zeo_conf).filter(|key| !key.is_empty())
    }

    /// Takes all settings that a section of `zeo.conf` has.
    fn take_zeo_conf(
        &mut self,
        section: &Section,
        surroundings: &Surroundings,
        findings: &mut Findings,
    ) {
        Self::entries().for_each(|entry| entry.zeo_conf(self, section, surroundings, findings));
    }

    /// Takes all settings that a table of TOML has.
    fn take_toml(&mut self, table: &Table, findings: &mut Findings) {
        Self::entries().for_each(|entry| entry.toml(self, table, findings));
    }
}

/// An entry whose kind of values is not known.
pub(crate) trait Entry<G>: Sync {
    fn description(&self) -> &Description;
    fn values(&self) -> Values;
    /// Takes the values of an option.
    fn texts(&self, group: &mut G, texts: &[OsString]) -> Converted<()>;
    /// Takes the value of a table, if it has one.
    fn toml(&self, group: &mut G, table: &Table, findings: &mut Findings);
    /// Takes the value of a section, if it has one.
    fn zeo_conf(
        &self,
        group: &mut G,
        section: &Section,
        surroundings: &Surroundings,
        findings: &mut Findings,
    );
    /// Its value as TOML.
    fn written(&self, group: &G) -> Written<Option<toml::Value>>;
}

/// A reader for a setting that `zeo.conf` has in another form. `None`: as if it was not given.
pub(crate) type FromZeoConf<V> = fn(&str, &Surroundings) -> Converted<Option<V>>;

/// An entry: a setting of the group `G` with values of the kind `K`.
pub(crate) struct Field<G, K: Kind> {
    pub(crate) description: Description,
    pub(crate) kind: K,
    pub(crate) get: fn(&G) -> Option<K::Value>,
    pub(crate) set: fn(&mut G, K::Value),
    pub(crate) from_zeo_conf: Option<FromZeoConf<K::Value>>,
}

impl<G, K: Kind> Entry<G> for Field<G, K> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn values(&self) -> Values {
        self.kind.values()
    }

    fn texts(&self, group: &mut G, texts: &[OsString]) -> Converted<()> {
        (self.set)(group, self.kind.texts(texts)?);
        Ok(())
    }

    fn toml(&self, group: &mut G, table: &Table, findings: &mut Findings) {
        let key = self.description.key;
        if self.description.is_required {
            table.require(key, findings);
        }
        let Some(value) = table.value(key) else { return };
        let value =
            self.kind.toml_value(value, &table.document.directory, &mut |bytes, message| {
                let place = table.document.source.place(bytes);
                findings.mistake(Mistake::new(place, format!("`{key}`: {message}")));
            });
        if let Some(value) = value {
            (self.set)(group, value);
        }
    }

    fn zeo_conf(
        &self,
        group: &mut G,
        section: &Section,
        surroundings: &Surroundings,
        findings: &mut Findings,
    ) {
        let key = self.description.zeo_conf;
        if key.is_empty() {
            return;
        }
        if self.description.is_required {
            section.require(key, findings);
        }
        let value = section.setting(key, findings, |text| match self.from_zeo_conf {
            Some(read) => read(text, surroundings),
            None => self.kind.zeo_conf(text, surroundings).map(Some),
        });
        if let Some(Some(value)) = value {
            (self.set)(group, value);
        }
    }

    fn written(&self, group: &G) -> Written<Option<toml::Value>> {
        (self.get)(group).map(|value| self.kind.written(&value)).transpose()
    }
}

/// Makes a group of settings: the struct, its defaults, and the entries of its fields.
///
/// A field is `name: type = default, { kind; names and sources }`, below its help. Two things may
/// follow in the braces: `from_zeo_conf`, for another form in `zeo.conf`, and `get` with `set`, if
/// the field and the setting differ. Several settings of one field are a list, each with its help.
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        pub struct $group:ident {
            $(
                $(#[doc = $help:literal])*
                $field:ident: $type:ty = $default:expr, $entries:tt
            )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $group {
            $( $(#[doc = $help])* pub $field: $type, )*
        }

        impl Default for $group {
            fn default() -> $group {
                $group { $($field: $default,)* }
            }
        }

        impl $crate::settings::field::Group for $group {
            const SETTINGS: $crate::settings::field::Entries<$group> =
                &[$( settings!(@ $group, $field, [concat!($($help, "\n"),*)], $entries) ),*];
        }
    };
    (@ $group:ident, $field:ident, $help:tt, [$($entry:tt),* $(,)?]) => {
        &[$( settings!(@ entry $group, $field, [], $entry) ),*]
    };
    (@ $group:ident, $field:ident, $help:tt, $entry:tt) => {
        &[settings!(@ entry $group, $field, $help, $entry)]
    };
    (@ entry $group:ident, $field:ident, $help:tt, {
        $kind:expr; $($name:ident: $value:expr),* $(,)? $(; from_zeo_conf: $read:expr)?
    }) => {
        settings!(@ entry $group, $field, $help, {
            $kind; $($name: $value),* $(; from_zeo_conf: $read)?;
            get: |group| group.$field.clone().into(),
            set: |group, value| group.$field = value.into()
        })
    };
    (@ entry $group:ident, $field:ident, [$($help:expr)?], {
        $kind:expr; $($name:ident: $value:expr),* $(,)? $(; from_zeo_conf: $read:expr)?;
        get: $get:expr, set: $set:expr $(,)?
    }) => {
        &$crate::settings::field::Field::<$group, _> {
            kind: $kind,
            description: $crate::settings::description::Description {
                $(help: $help,)?
                $($name: $value,)*
                ..$crate::settings::description::Description::NONE
            },
            get: $get,
            set: $set,
            from_zeo_conf: settings!(@ option $($read)?),
        }
    };
    (@ option) => { None };
    (@ option $read:expr) => { Some($read) };
}

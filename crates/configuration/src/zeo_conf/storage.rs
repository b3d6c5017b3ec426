//! Storages: `<filestorage>`, `<mappingstorage>`, a `<blobstorage>` around one, and storages that
//! are not served.

use super::section::Section;
use crate::error::{Findings, Mistake};
use crate::settings::field::Group;
use crate::settings::kinds::zconfig_values::plain_path;
use crate::settings::packing::PackOptions;
use crate::settings::storage::{StorageKind, StorageOptions, begins_anew};
use crate::surroundings::Surroundings;

pub(super) const BLOBSTORAGE: [&str; 1] = ["blob-dir"];

pub(super) const MAPPINGSTORAGE: [&str; 1] = ["name"];

pub(super) const PACKER: &str = "packer";

/// The name of a storage without one.
const DEFAULT_NAME: &str = "1";

const BY_CLIENTS: &str = "put it into the client's configuration, around its <zeoclient>, and \
                          serve the storage in it with `pack-gc off`: only the clients can read \
                          references in its data";

const REPLICATED: &str = "serve the storage in it; `zodium backup --watch` and repozo copy a data \
                          file while it is served";

/// Storages that are not served, with what to do instead.
pub(super) const REFUSED: [(&str, &str); 15] = [
    ("demostorage", "serve the base, and put the <demostorage> into the client's configuration"),
    ("clientstorage", "let the clients connect to that server themselves"),
    ("zeoclient", "let the clients connect to that server themselves"),
    ("zlibstorage", BY_CLIENTS),
    (
        "serverzlibstorage",
        "copy it into a plain data file with copyTransactionsFrom, and have the clients set \
         `compress false`",
    ),
    ("cipherstorage", BY_CLIENTS),
    (
        "serverencryptingstorage",
        "serve the storage in it with `pack-gc off`, and put an <encryptingstorage> into the \
         client's configuration, around its <zeoclient>",
    ),
    ("relstorage", "its clients need no server between them and the database"),
    ("zrs", REPLICATED),
    ("primary", REPLICATED),
    ("secondary", REPLICATED),
    ("temporarystorage", "use a <mappingstorage>, which is kept in memory too"),
    ("fullstorage", "convert it to a FileStorage"),
    ("minimalstorage", "convert it to a FileStorage"),
    ("zodb", "that is a client's section: give the storage in it alone"),
];

pub(super) fn refused_kinds() -> [&'static str; REFUSED.len()] {
    REFUSED.map(|(kind, _)| kind)
}

/// All storages of a file; reports those that are wrong, and a file without any.
pub(super) fn storages(
    whole: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Vec<StorageOptions> {
    let mut storages = Vec::new();
    for section in &whole.sections {
        let read = match &section.kind[..] {
            "filestorage" => Some(filestorage(section, surroundings, findings)),
            "blobstorage" => blobstorage(section, surroundings, findings),
            "mappingstorage" => Some(mappingstorage(section, findings)),
            _ => {
                refuse(section, findings);
                None
            }
        };
        storages.extend(read);
    }
    check_names(whole, findings);
    // Any unknown section counts as an attempt at a storage, and is reported.
    let is_other = |section: &Section| matches!(&section.kind[..], "zeo" | "eventlog" | "runner");
    if whole.sections.iter().all(is_other) {
        let message = "there is no storage to serve";
        let help = "write `<filestorage 1>`, `path /path/to/Data.fs`, `</filestorage>`";
        findings.mistake(Mistake::new(whole.place.clone(), message).help(help));
    }
    storages
}

/// Reports a storage of a known kind that is not served.
fn refuse(section: &Section, findings: &mut Findings) {
    if let Some((kind, advice)) = REFUSED.iter().find(|(kind, _)| *kind == section.kind) {
        let message = format!("a <{kind}> is not served");
        findings.mistake(Mistake::new(section.place.clone(), message).help(*advice));
    }
}

/// Checks that names are unique among all sections, and that at most one storage has none.
fn check_names(whole: &Section, findings: &mut Findings) {
    let is_storage = |section: &&Section| section.kind.ends_with("storage");
    let mut unnamed = None;
    for section in whole.sections.iter().filter(is_storage) {
        if section.name.as_deref().unwrap_or(DEFAULT_NAME) != DEFAULT_NAME {
            continue;
        }
        if let Some(first) = unnamed.replace(section)
            && (first.name.is_none() || section.name.is_none())
        {
            let line = first.place.line();
            let message =
                format!("a storage without a name is named `1`, as that in line {line} is");
            let help = format!("write `<{} NAME>`", section.kind);
            findings.mistake(Mistake::new(section.place.clone(), message).help(help));
        }
    }
}

fn name_of(section: &Section) -> String {
    section.name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned())
}

fn mappingstorage(section: &Section, findings: &mut Findings) -> StorageOptions {
    section.check_keys(&MAPPINGSTORAGE, findings);
    section.check_sections(&[], findings);
    StorageOptions::new(name_of(section), StorageKind::Memory)
}

fn filestorage(
    section: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> StorageOptions {
    let known = StorageOptions::zeo_conf_keys().chain(PackOptions::zeo_conf_keys());
    section.check_keys(&known.chain([PACKER]).collect::<Vec<_>>(), findings);
    section.check_sections(&[], findings);
    refuse_packer(section, findings);
    section.require("path", findings);
    let mut storage = StorageOptions { name: name_of(section), ..StorageOptions::default() };
    storage.take_zeo_conf(section, surroundings, findings);
    storage.pack.take_zeo_conf(section, surroundings, findings);
    if matches!(storage.kind, StorageKind::File { truncate: true, .. })
        && let Some(create) = section.value("create")
    {
        findings.warning(&create.place, begins_anew("create"));
    }
    storage
}

fn refuse_packer(section: &Section, findings: &mut Findings) {
    let packer = section.value(PACKER).filter(|packer| !packer.text.is_empty());
    if let Some(packer) = packer {
        let message = "`packer`: no Python is ever called";
        let help = "remove it: the server's own packer works while storages are served";
        findings.mistake(Mistake::new(packer.place.clone(), message).help(help));
    }
}

/// The inner storage, with the outer name and blob directory.
fn blobstorage(
    section: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Option<StorageOptions> {
    section.check_keys(&BLOBSTORAGE, findings);
    section.check_sections_beside(&refused_kinds(), &["filestorage"], findings);
    section.require("blob-dir", findings);
    let blob_directory =
        section.setting("blob-dir", findings, |text| plain_path(text, surroundings));
    section.sections.iter().for_each(|inner| refuse(inner, findings));
    let Some(inner) = section.only("filestorage", findings) else {
        if section.sections.is_empty() {
            let message = "a <blobstorage> needs a <filestorage> inside";
            findings.mistake(Mistake::new(section.place.clone(), message));
        }
        return None;
    };
    let storage = filestorage(inner, surroundings, findings);
    if storage.blob_directory.is_some() {
        let message = "its blobs have a directory already, by the <blobstorage> around it";
        let help = "remove one of the two `blob-dir`";
        findings.mistake(Mistake::new(inner.place.clone(), message).help(help));
    }
    let blob_directory = Some(blob_directory?);
    Some(StorageOptions { name: name_of(section), blob_directory, ..storage })
}

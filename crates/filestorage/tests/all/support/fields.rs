//! The fields of a data file, one after the other, as the model knows them to be.

use super::Model;

/// A part of the file.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Field {
    /// All parts, in the order of the file.
    pub(crate) fn all(bytes: &[u8], model: &Model) -> Vec<Field> {
        let mut fields = Fields { at: 0, fields: Vec::new() };
        fields.add("magic", 4);
        for transaction in &model.transactions {
            let metadata = &transaction.metadata;
            fields.add("transaction tid", 8);
            fields.add("transaction length", 8);
            fields.add("status", 1);
            fields.add("metadata lengths", 6);
            fields.add("metadata", metadata.user.len());
            fields.add("metadata", metadata.description.len());
            fields.add("metadata", metadata.extension.len());
            for record in &transaction.records {
                fields.add("oid", 8);
                fields.add("record tid", 8);
                fields.add("previous", 8);
                fields.add("transaction position", 8);
                fields.add("version length", 2);
                fields.add("data length", 8);
                match (&record.data, record.points_to) {
                    (Some(data), None) => fields.add("data", data.len()),
                    _ => fields.add("back pointer", 8),
                }
            }
            fields.add("transaction length", 8);
        }
        assert_eq!(fields.at, bytes.len());
        fields.fields
    }
}

struct Fields {
    at: usize,
    fields: Vec<Field>,
}

impl Fields {
    fn add(&mut self, name: &'static str, bytes: usize) {
        self.fields.push(Field { name, start: self.at, end: self.at + bytes });
        self.at += bytes;
    }
}

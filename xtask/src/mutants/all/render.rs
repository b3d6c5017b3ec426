//! A text with insertions around parts of it, and where each mutation is in the result.

use std::cmp::Reverse;
use std::ops::Range;

/// What to write before and after a part of a text. Parts do not overlap, but may be nested.
pub(super) struct Edit {
    /// Of the original text, in bytes.
    pub(super) range: Range<usize>,
    pub(super) before: Vec<Piece>,
    pub(super) after: &'static str,
}

/// A piece of what is written before a part.
pub(super) enum Piece {
    Text(String),
    /// What a mutation has in the place of the original.
    Mutated(u32, String),
}

/// Where a mutation is in the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) id: u32,
    /// The mutated code alone, or the original with all its mutations.
    pub(super) is_mutated: bool,
    pub(super) range: Range<usize>,
}

/// A part that is begun: where its edit began in the result.
type Open = (Edit, usize);

#[derive(Default)]
struct Output<'a> {
    original: &'a str,
    /// So much of the original is written.
    copied: usize,
    text: String,
    marks: Vec<Mark>,
}

/// Applies all edits. Of two edits of one part the first one is outside.
pub(super) fn render(original: &str, mut edits: Vec<Edit>) -> (String, Vec<Mark>) {
    edits.sort_by_key(|Edit { range, .. }| (range.start, !range.is_empty(), Reverse(range.end)));
    let mut output = Output { original, ..Output::default() };
    let mut open: Vec<Open> = Vec::new();
    for edit in edits {
        while let Some(ended) = open.pop_if(|(inner, _)| inner.range.end <= edit.range.start) {
            output.end(ended);
        }
        open.push(output.begin(edit));
    }
    while let Some(ended) = open.pop() {
        output.end(ended);
    }
    output.copy(original.len());
    (output.text, output.marks)
}

impl Output<'_> {
    fn copy(&mut self, end: usize) {
        self.text.push_str(&self.original[self.copied..end]);
        self.copied = end;
    }

    fn begin(&mut self, edit: Edit) -> Open {
        self.copy(edit.range.start);
        let begin = self.text.len();
        for piece in &edit.before {
            let start = self.text.len();
            match piece {
                Piece::Text(text) => self.text.push_str(text),
                Piece::Mutated(id, text) => {
                    self.text.push_str(text);
                    let range = start..self.text.len();
                    self.marks.push(Mark { id: *id, is_mutated: true, range });
                }
            }
        }
        (edit, begin)
    }

    fn end(&mut self, (edit, begin): Open) {
        self.copy(edit.range.end);
        self.text.push_str(edit.after);
        for piece in edit.before {
            if let Piece::Mutated(id, _) = piece {
                let range = begin..self.text.len();
                self.marks.push(Mark { id, is_mutated: false, range });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(range: Range<usize>, id: u32) -> Edit {
        let before = vec![
            Piece::Text("<".to_owned()),
            Piece::Mutated(id, id.to_string()),
            Piece::Text(":".to_owned()),
        ];
        Edit { range, before, after: ">" }
    }

    #[test]
    fn edits_are_nested_and_found_again() {
        // Inner ones are given first; of one part, the outer one.
        let edits = vec![edit(2..3, 1), edit(1..4, 2), edit(1..4, 3), edit(4..5, 4)];
        let (text, marks) = render("abcdef", edits);
        assert_eq!(text, "a<2:<3:b<1:c>d>><4:e>f");
        let found = |id, is_mutated| {
            let mark = marks.iter().find(|mark| mark.id == id && mark.is_mutated == is_mutated);
            &text[mark.unwrap().range.clone()]
        };
        assert_eq!((found(1, true), found(1, false)), ("1", "<1:c>"));
        assert_eq!((found(3, true), found(3, false)), ("3", "<3:b<1:c>d>"));
        assert_eq!(found(2, false), "<2:<3:b<1:c>d>>");
    }

    #[test]
    fn an_insertion_comes_before_what_begins_where_it_is() {
        let (text, _) = render("abc", vec![edit(1..2, 1), edit(1..1, 2), edit(2..2, 3)]);
        assert_eq!(text, "a<2:><1:b><3:>c");
    }

    #[test]
    fn a_text_without_edits_stays() {
        assert_eq!(render("abc", Vec::new()), ("abc".to_owned(), Vec::new()));
    }
}

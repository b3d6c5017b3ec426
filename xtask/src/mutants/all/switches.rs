//! Puts each mutation of a file behind a switch: the program decides which one is on.
//!
//! An expression becomes `(if is_on(7) { mutated } else { original })`, and a function returns
//! early with the value of a mutation. So all mutations are compiled at once. Where the compiler
//! wants a constant there can be no switch: mutations of constants are left out.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::plan::{Genre, Planned, Position};
use super::render::{Edit, Mark, Piece, render};

/// The module of the switches in a mutated crate.
pub(super) const MODULE: &str = "mutation_switch";

/// A file with all its mutations.
pub(super) struct Switched {
    pub(super) text: String,
    pub(super) marks: Vec<Mark>,
    /// Mutations without a place for a switch.
    pub(super) left_out: BTreeSet<u32>,
}

/// Rewrites a file. Errors are those of the parser: of the file, or of what became of it.
pub(super) fn switch(text: &str, mutations: &[&Planned]) -> syn::Result<Switched> {
    let mut planned: HashMap<_, Vec<&Planned>> = HashMap::new();
    for mutation in mutations {
        planned.entry((mutation.genre, mutation.span.start)).or_default().push(mutation);
    }
    let mut switches = Switches { text, planned, edits: Vec::new(), constants: 0 };
    switches.visit_file(&syn::parse_file(text)?);
    let left_out = switches.planned.values().flatten().map(|mutation| mutation.id).collect();
    let (text, marks) = render(text, switches.edits);
    syn::parse_file(&text)?;
    Ok(Switched { text, marks, left_out })
}

struct Switches<'a> {
    text: &'a str,
    /// Those that have no switch yet.
    planned: HashMap<(Genre, Position), Vec<&'a Planned>>,
    edits: Vec<Edit>,
    /// So many constants are around the place.
    constants: usize,
}

impl<'a> Switches<'a> {
    /// The mutations that begin where a part of the syntax begins.
    fn take(&mut self, genre: Genre, part: &impl Spanned) -> Vec<&'a Planned> {
        if self.constants > 0 {
            return Vec::new();
        }
        let start = part.span().start();
        let position = Position { line: start.line, column: start.column + 1 };
        self.planned.remove(&(genre, position)).unwrap_or_default()
    }

    fn text_of(&self, part: &impl Spanned) -> &'a str {
        &self.text[part.span().byte_range()]
    }

    /// Chooses between an expression and what mutations have in its place.
    fn choose(&mut self, range: Range<usize>, mutated: Vec<(u32, String)>) {
        if mutated.is_empty() {
            return;
        }
        let mut before = vec![Piece::Text("(".to_owned())];
        for (id, text) in mutated {
            before.push(Piece::Text(format!("if {} {{ ", is_on(id))));
            before.push(Piece::Mutated(id, text));
            before.push(Piece::Text(" } else ".to_owned()));
        }
        before.push(Piece::Text("{ ".to_owned()));
        self.edits.push(Edit { range, before, after: " })" });
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let Some(first) = block.stmts.first() else { return };
        let mutations = self.take(Genre::FnValue, first);
        if mutations.is_empty() {
            return;
        }
        let mut before = Vec::new();
        for mutation in &mutations {
            before.push(Piece::Text(format!(" if {} {{ return ", is_on(mutation.id))));
            before.push(Piece::Mutated(mutation.id, format!("({})", mutation.replacement)));
            before.push(Piece::Text("; }".to_owned()));
        }
        let block = block.span().byte_range();
        let start = block.start + 1;
        if self.text_of(&signature.output).contains("impl ") {
            // A wrong type of the value is an error elsewhere in the function.
            self.mark(block, &mutations);
        }
        self.edits.push(Edit { range: start..start, before, after: "" });
    }

    /// Has errors in a part that stays be taken for those of mutations elsewhere.
    fn mark(&mut self, range: Range<usize>, mutations: &[&Planned]) {
        let unchanged = |mutation: &&Planned| Piece::Mutated(mutation.id, String::new());
        let before = mutations.iter().map(unchanged).collect();
        self.edits.push(Edit { range, before, after: "" });
    }

    fn guard(&mut self, guard: &syn::Expr) {
        if contains_let(guard) {
            return;
        }
        let mutations = self.take(Genre::MatchArmGuard, guard);
        let mutated = mutations.iter().map(|mutation| (mutation.id, mutation.replacement.clone()));
        self.choose(guard.span().byte_range(), mutated.collect());
    }

    /// Looks at what the compiler must know the value of.
    fn constant(&mut self, inside: impl FnOnce(&mut Self)) {
        self.constants += 1;
        inside(self);
        self.constants -= 1;
    }

    /// Looks at a function, which may be one for constants.
    fn inside_function(&mut self, signature: &syn::Signature, inside: impl FnOnce(&mut Self)) {
        match signature.constness {
            Some(_) => self.constant(inside),
            None => inside(self),
        }
    }
}

fn is_on(id: u32) -> String {
    format!("crate::{MODULE}::is_on({id})")
}

/// A chain with a `let` is a condition, but no expression of its own.
fn contains_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => contains_let(&binary.left) || contains_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Switches<'_> {
    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        if !contains_let(&node.left) && !contains_let(&node.right) {
            let mutations = self.take(Genre::BinaryOperator, &node.op);
            let (left, right) = (self.text_of(&node.left), self.text_of(&node.right));
            let mutated = mutations.iter().map(|mutation| {
                (mutation.id, format!("({left}) {} ({right})", mutation.replacement))
            });
            self.choose(node.span().byte_range(), mutated.collect());
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        let mutations = self.take(Genre::UnaryOperator, &node.op);
        let operand = self.text_of(&node.expr);
        let mutated = mutations
            .iter()
            .map(|mutation| (mutation.id, format!("{} {operand}", mutation.replacement)));
        self.choose(node.span().byte_range(), mutated.collect());
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        let whole = node.span().byte_range();
        let mut mutated = Vec::new();
        for field in &node.fields {
            let range = field.span().byte_range();
            for mutation in self.take(Genre::StructField, field) {
                let before = &self.text[whole.start..range.start];
                let after = self.text[range.end..whole.end].trim_start();
                let after = after.strip_prefix(',').unwrap_or(after);
                mutated.push((mutation.id, format!("{before}{after}")));
            }
        }
        self.choose(whole, mutated);
        visit::visit_expr_struct(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        let mut all = Vec::new();
        // An arm with a guard is taken away by the guard.
        for arm in node.arms.iter().filter(|arm| !matches!(arm.pat, syn::Pat::Guard(_))) {
            let end = arm.pat.span().byte_range().end;
            let mutations = self.take(Genre::MatchArm, arm);
            for mutation in &mutations {
                let before = vec![
                    Piece::Text(format!(" if !{}", is_on(mutation.id))),
                    Piece::Mutated(mutation.id, String::new()),
                ];
                self.edits.push(Edit { range: end..end, before, after: "" });
            }
            all.extend(mutations);
        }
        // If the other arms do not cover all cases, the error is here.
        self.mark(node.expr.span().byte_range(), &all);
        visit::visit_expr_match(self, node);
    }

    fn visit_pat(&mut self, node: &'ast syn::Pat) {
        match node {
            syn::Pat::Guard(guarded) => {
                self.guard(&guarded.guard);
                self.visit_expr(&guarded.guard);
                self.visit_pat(&guarded.pat);
            }
            _ => self.constant(|switches| visit::visit_pat(switches, node)),
        }
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.inside_function(&node.sig, |switches| {
            switches.function(&node.sig, &node.block);
            visit::visit_item_fn(switches, node);
        });
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.inside_function(&node.sig, |switches| {
            switches.function(&node.sig, &node.block);
            visit::visit_impl_item_fn(switches, node);
        });
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.function(&node.sig, block);
        }
        visit::visit_trait_item_fn(self, node);
    }

    fn visit_item_const(&mut self, node: &'ast syn::ItemConst) {
        self.constant(|switches| visit::visit_item_const(switches, node));
    }

    fn visit_item_static(&mut self, node: &'ast syn::ItemStatic) {
        self.constant(|switches| visit::visit_item_static(switches, node));
    }

    fn visit_impl_item_const(&mut self, node: &'ast syn::ImplItemConst) {
        self.constant(|switches| visit::visit_impl_item_const(switches, node));
    }

    fn visit_trait_item_const(&mut self, node: &'ast syn::TraitItemConst) {
        self.constant(|switches| visit::visit_trait_item_const(switches, node));
    }

    fn visit_expr_const(&mut self, node: &'ast syn::ExprConst) {
        self.constant(|switches| visit::visit_expr_const(switches, node));
    }

    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
        self.constant(|switches| switches.visit_expr(&node.len));
    }

    fn visit_variant(&mut self, node: &'ast syn::Variant) {
        self.constant(|switches| visit::visit_variant(switches, node));
    }

    fn visit_type(&mut self, node: &'ast syn::Type) {
        self.constant(|switches| visit::visit_type(switches, node));
    }

    fn visit_generic_argument(&mut self, node: &'ast syn::GenericArgument) {
        self.constant(|switches| visit::visit_generic_argument(switches, node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with mutations, each given by its kind, where it begins, and the code in its place.
    fn switched(text: &str, mutations: &[(Genre, &str, &str)]) -> Switched {
        let planned: Vec<Planned> = (1..)
            .zip(mutations)
            .map(|(id, (genre, at, replacement))| Planned::of(id, *genre, text, at, replacement))
            .collect();
        switch(text, &planned.iter().collect::<Vec<_>>()).unwrap()
    }

    /// The file after the rewriting, with short names of the switches.
    fn rewritten(text: &str, mutations: &[(Genre, &str, &str)]) -> String {
        let switched = switched(text, mutations);
        assert_eq!(switched.left_out, BTreeSet::new());
        switched.text.replace("crate::mutation_switch::is_on", "on")
    }

    #[test]
    fn an_operator_has_its_operands_in_each_branch() {
        use Genre::{BinaryOperator, UnaryOperator};
        assert_eq!(
            rewritten(
                "fn f() { a + b }",
                &[(BinaryOperator, "+", "-"), (BinaryOperator, "+", "*")]
            ),
            "fn f() { (if on(1) { (a) - (b) } else if on(2) { (a) * (b) } else { a + b }) }"
        );
        assert_eq!(
            rewritten("fn f() { !a }", &[(UnaryOperator, "!", "")]),
            "fn f() { (if on(1) {  a } else { !a }) }"
        );
        // Only the innermost original has the switches of its parts.
        assert_eq!(
            rewritten(
                "fn f() { a < b * c; }",
                &[(BinaryOperator, "<", ">"), (BinaryOperator, "*", "/")]
            ),
            "fn f() { (if on(1) { (a) > (b * c) } else { a < (if on(2) { (b) / (c) } else { b * c \
             }) }); }"
        );
    }

    #[test]
    fn a_function_returns_the_value_of_a_mutation() {
        use Genre::FnValue;
        let mutations = [(FnValue, "a()", "0"), (FnValue, "a()", "1")];
        assert_eq!(
            rewritten("fn f() -> u8 { a() }", &mutations),
            "fn f() -> u8 { if on(1) { return (0); } if on(2) { return (1); } a() }"
        );
        let text = "impl A { async fn f() -> bool { let b = 1; true } }";
        assert_eq!(
            rewritten(text, &[(FnValue, "let", "false")]),
            text.replace("{ let", "{ if on(1) { return (false); } let")
        );
        // Also where its first statement has a switch.
        assert_eq!(
            rewritten(
                "fn f() -> u8 {a + b}",
                &[(FnValue, "a", "0"), (Genre::BinaryOperator, "+", "-")]
            ),
            "fn f() -> u8 { if on(1) { return (0); }(if on(2) { (a) - (b) } else { a + b })}"
        );
    }

    #[test]
    fn an_arm_is_taken_away_by_a_guard() {
        assert_eq!(
            rewritten("fn f() { match a { 1 | 2 => b, _ => c } }", &[(Genre::MatchArm, "1", "")]),
            "fn f() { match a { 1 | 2 if !on(1) => b, _ => c } }"
        );
        assert_eq!(
            rewritten(
                "fn f() { match a { _ if d == e => b, _ => c } }",
                &[(Genre::MatchArmGuard, "d", "true"), (Genre::BinaryOperator, "==", "!=")]
            ),
            "fn f() { match a { _ if (if on(1) { true } else { (if on(2) { (d) != (e) } else { d \
             == e }) }) => b, _ => c } }"
        );
    }

    #[test]
    fn a_field_is_left_out_with_its_comma() {
        let text = "fn f() { A { b: 1, c: 2, ..d } }";
        assert_eq!(
            rewritten(text, &[(Genre::StructField, "b", ""), (Genre::StructField, "c", "")]),
            "fn f() { (if on(1) { A {  c: 2, ..d } } else if on(2) { A { b: 1,  ..d } } else { A { \
             b: 1, c: 2, ..d } }) }"
        );
    }

    #[test]
    fn constants_and_chains_of_let_have_no_place_for_a_switch() {
        for text in [
            "const A: u8 = b + c;",
            "static A: u8 = b + c;",
            "impl A { const A: u8 = b + c; }",
            "trait A { const A: u8 = b + c; }",
            "const fn f() -> u8 { b + c }",
            "enum A { B = b + c }",
            "fn f(a: [u8; b + c]) {}",
            "fn f() { [0; b + c]; }",
            "fn f() { const { b + c }; }",
            "fn f() { a::<{ b + c }>(); }",
            "fn f() { if let a = b && d + c {} }",
        ] {
            let at = if text.contains("&&") { "&&" } else { "+" };
            let switched = switched(text, &[(Genre::BinaryOperator, at, "-")]);
            assert_eq!(switched.left_out, BTreeSet::from([1]), "{text}");
            assert_eq!(switched.text, text);
        }
        // A part of a chain has one.
        let text = "fn f() { if let a = b && d == c {} }";
        assert_eq!(
            rewritten(text, &[(Genre::BinaryOperator, "==", "!=")]),
            "fn f() { if let a = b && (if on(1) { (d) != (c) } else { d == c }) {} }"
        );
    }

    #[test]
    fn a_mutation_is_found_again_in_the_result() {
        let text = "fn f() -> impl A { a + b }";
        let Switched { text, marks, .. } =
            switched(text, &[(Genre::BinaryOperator, "+", "-"), (Genre::FnValue, "a", "c")]);
        let found = |id, is_mutated| -> Vec<&str> {
            let marks = marks.iter().filter(|mark| (mark.id, mark.is_mutated) == (id, is_mutated));
            marks.map(|mark| &text[mark.range.clone()]).collect()
        };
        assert_eq!(found(1, true), ["(a) - (b)"]);
        assert!(found(1, false)[0].starts_with("(if") && found(1, false)[0].ends_with(")"));
        assert!(found(2, true).contains(&"(c)"));
        // The type of the value may not fit the rest of the function.
        let switched =
            switched("fn f() { match a { 1 => b, _ => c } }", &[(Genre::MatchArm, "1", "")]);
        let arm = Mark { id: 1, is_mutated: false, range: 15..16 };
        assert_eq!(&switched.text[arm.range.clone()], "a");
        assert!(switched.marks.contains(&arm));
        let is_block = |found: &&str| found.starts_with('{') && found.ends_with('}');
        assert!(found(2, false).iter().any(is_block));
    }

    #[test]
    fn a_file_that_does_not_parse_is_an_error() {
        assert!(switch("fn f() {", &[]).is_err());
    }
}

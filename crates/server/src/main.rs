//! The `zodium` program.
fn main() {}

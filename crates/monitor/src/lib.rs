//! The server's HTTP side: metrics for machines, health for supervisors, a page for people.

#![forbid(unsafe_code)]

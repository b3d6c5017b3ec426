//! TLS as ZEO uses it: certificates, keys, and whom a server believes.

#![forbid(unsafe_code)]

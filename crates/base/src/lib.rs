//! The base of every program of this repository: errors, texts, objects and files. It is independent of any cloud, and
//! needs neither a client nor a runtime.

#![forbid(unsafe_code)]

pub mod version;

pub mod error;

pub mod grace;

pub mod files;

pub mod object;

pub mod text;

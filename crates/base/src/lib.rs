//! What every program of this repository may use: errors, texts, objects and files. It knows no cloud, and needs neither
//! a client nor a runtime.

#![forbid(unsafe_code)]

pub mod version;

pub mod error;

pub mod grace;

pub mod files;

pub mod object;

pub mod text;
